"""The `graphopt` command."""

from __future__ import annotations

import sys

__all__ = ["main"]

_COLLECT_AFTER = 50_000
"""Objects that are made before Python looks for circles among them.

By default it does so dozens of times while modules are imported, none of which go away: a tenth of a short run.
"""


def main() -> None:
    """Run the command line; what a command needs is imported when it runs."""
    import gc

    gc.set_threshold(_COLLECT_AFTER)
    import warnings

    from graphopt.cli.app import end_in_order, format_warning, run

    warnings.formatwarning = format_warning
    end_in_order()
    code = run(sys.argv[1:])
    gc.freeze()  # what is left goes with the process: nobody need look for circles in it first
    sys.exit(code)
