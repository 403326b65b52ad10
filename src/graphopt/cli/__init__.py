"""The `graphopt` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; what a command needs is imported when it runs."""
    import warnings

    from graphopt.cli.app import end_in_order, format_warning, run

    warnings.formatwarning = format_warning
    end_in_order()
    sys.exit(run(sys.argv[1:]))
