"""Drop-in replacements: change `import onnxoptimizer` to `from graphopt.compat import onnxoptimizer`, and so on.

If the import is in a third-party exporter, `stand_in` replaces it from outside.
"""

from __future__ import annotations

import importlib
import sys

from graphopt.errors import UsageError

NAMES = ("onnxoptimizer", "onnxsim", "onnxslim")
"""The optimizers that graphopt can replace."""

__all__ = ["NAMES", "stand_in"]


def stand_in(*names: str) -> None:
    """Make `import onnxslim` and the like import graphopt's replacement in this process, from now on.

    Args:
        *names: the optimizers to replace; all of `NAMES` if none is given.

    Raises:
        UsageError: graphopt has no replacement of that name.
    """
    for name in names or NAMES:
        if name not in NAMES:
            raise UsageError(f"no counterpart of {name!r}; expected some of {', '.join(NAMES)}")
        sys.modules[name] = importlib.import_module(f"graphopt.compat.{name}")
