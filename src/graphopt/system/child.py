"""The child's side of `graphopt.system.processes`: `python -P -m graphopt.system.child FOLDER`."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from graphopt.errors import GraphoptError
from graphopt.system.extras import require

JOB, RESULT = "job", "result"
FINISHED = "null"

_answers: IO[str] | None = None


def tell(**message: Any) -> None:
    """Send a message to the parent; does nothing without one.

    Args:
        **message: values that JSON can hold.
    """
    _send(json.dumps(message))


def requests() -> Iterator[dict[str, Any]]:
    """The requests of the parent, until it closes the pipe."""
    for line in sys.stdin:
        yield json.loads(line)


def _send(line: str) -> None:
    if _answers is not None:
        _answers.write(line + "\n")
        _answers.flush()


def peak_memory() -> int | None:
    """Peak resident bytes of this process so far; None if the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):  # unlike getrusage, this excludes the memory of the forking parent
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # not a POSIX system
        psutil = require("psutil")

        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0)) or None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(folder: Path) -> None:
    """Call the function named in the folder's job file, and write its result to the folder."""
    global _answers  # noqa: PLW0603  # one process, one parent
    # The function may print: answers keep the real standard output, and all else goes to standard error.
    _answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Arguments may be of classes of the function's module, which must be importable by name.
    module, name, args = pickle.loads((folder / JOB).read_bytes())
    function = getattr(importlib.import_module(module), name)
    try:
        outcome = function(*args)
    except GraphoptError as error:
        outcome = error
    (folder / RESULT).write_bytes(pickle.dumps(outcome))
    _send(FINISHED)


if __name__ == "__main__":
    # As a script this module is `__main__`, but the function imports `tell` from the module by its real name.
    from graphopt.system.child import main as run

    run(Path(sys.argv[1]))
