"""The `graphopt` command."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line; what a command needs is imported when it runs."""
    import sys

    if sys.argv[1:] == ["--version"]:
        from graphopt.cli.version import show

        show()
        return
    from graphopt.cli.app import app, end_in_order

    end_in_order()
    app(prog_name="graphopt")
