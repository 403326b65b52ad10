"""`graphopt --version`."""

from __future__ import annotations

import sys


def show() -> None:
    """Print the version."""
    from graphopt import __version__

    sys.stdout.write(f"graphopt {__version__}\n")
