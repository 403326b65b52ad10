"""The `graphopt` command."""

from __future__ import annotations

import sys

__all__ = ["main"]

_COLLECT_AFTER = 1_000_000
"""Allocated objects before Python's first garbage collection.

By default it collects dozens of times during imports, which leave no garbage: a tenth of a short run, and a single
collection afterwards a twentieth. Models are collected by their size, see `graphopt.system.collector`.
"""

_FROM_FILE_TO_FILE = ("optimize", "convert")
"""The commands that use few of their imports; they start no thread that could see a partly imported module."""


_INTERRUPTED = 130


def main() -> None:
    """Run the command line; a command's imports are done when it runs."""
    try:
        _main()
    except KeyboardInterrupt:  # before or after the code that reports it
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
    gc.freeze()  # the remaining objects end with the process: skip their final collection
    end(code)
