"""The `graphopt` command."""

from __future__ import annotations

import sys

__all__ = ["main"]

_COLLECT_AFTER = 1_000_000
"""Objects that are made before Python looks for circles among them.

By default it does so dozens of times while modules are imported, none of which go away: a tenth of a short run, and to
do it once, with all of them there, a twentieth. Models are collected by their size, see `graphopt.system.collector`.
"""

_FROM_FILE_TO_FILE = ("optimize", "convert")
"""The commands that use little of what they import; they start no thread that could meet a part half imported."""


_INTERRUPTED = 130


def main() -> None:
    """Run the command line; what a command needs is imported when it runs."""
    try:
        _main()
    except KeyboardInterrupt:  # before there is anything that would tell of it, or after
        if sys.stderr is not None:
            sys.stderr.write("graphopt: interrupted\n")
        sys.exit(_INTERRUPTED)


def _main() -> None:
    import gc

    gc.set_threshold(_COLLECT_AFTER)
    import warnings

    from graphopt.cli.lifetime import end, import_in_parts, open_streams

    open_streams()
    if sys.argv[1:2] and sys.argv[1] in _FROM_FILE_TO_FILE:
        import_in_parts()
    from graphopt.cli.app import end_in_order, format_warning, run

    warnings.formatwarning = format_warning
    end_in_order()
    code = run(sys.argv[1:])
    gc.freeze()  # what is left goes with the process: nobody need look for circles in it first
    end(code)
