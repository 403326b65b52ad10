"""Drop-in replacements: change `import onnxoptimizer` to `from graphopt.compat import onnxoptimizer`, and so on.

Where the import is in somebody else's exporter, `stand_in` changes it from outside.
"""

from __future__ import annotations

import importlib
import sys

from graphopt.errors import UsageError

NAMES = ("onnxoptimizer", "onnxsim", "onnxslim")
"""The optimizers that graphopt can stand in for."""

__all__ = ["NAMES", "stand_in"]


def stand_in(*names: str) -> None:
    """Let `import onnxslim` and the like give graphopt's counterpart in this process, from now on.

    Args:
        *names: what to stand in for; all of `NAMES` when none is given.

    Raises:
        UsageError: graphopt has no counterpart of that name.
    """
    for name in names or NAMES:
        if name not in NAMES:
            raise UsageError(f"no counterpart of {name!r}; expected some of {', '.join(NAMES)}")
        sys.modules[name] = importlib.import_module(f"graphopt.compat.{name}")
