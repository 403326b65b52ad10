"""The process behind `graphopt.audit.process.call`: `python -m graphopt.audit.child FOLDER`."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path

from graphopt.errors import GraphoptError


def main(folder: Path) -> None:
    """Call the function named in the folder's job, and leave its result there."""
    # Arguments may be of classes of the function's module, which must be importable by name.
    module, name, args = pickle.loads((folder / "job").read_bytes())
    function = getattr(importlib.import_module(module), name)
    try:
        outcome = function(*args)
    except GraphoptError as error:
        outcome = error
    unfinished = folder / "unfinished"
    unfinished.write_bytes(pickle.dumps(outcome))
    unfinished.rename(folder / "result")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
