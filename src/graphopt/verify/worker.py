"""The process behind `graphopt.verify.isolation`: `python -m graphopt.verify.worker FOLDER`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from graphopt.errors import GraphoptError
from graphopt.verify.isolation import JOB, REPORT, STAGE
from graphopt.verify.oracle import run_comparison


def main(folder: Path) -> None:
    """Read the job, leave the stage reached and then the report in the folder."""
    _no_core_dump()
    original, result, request = pickle.loads((folder / JOB).read_bytes())
    stage = folder / STAGE
    try:
        outcome: object = run_comparison(original, result, request, lambda text: _write(stage, text))
    except GraphoptError as error:
        outcome = error
    finished = folder / "unfinished"
    finished.write_bytes(pickle.dumps(outcome))
    finished.rename(folder / REPORT)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _no_core_dump() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
