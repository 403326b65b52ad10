"""The command line: commands, and what becomes of errors.

Exit codes: 0 all is well; 1 a difference was found, or a verification failed; 2 wrong usage; 3 a model or file that
cannot be used; 4 a pass or graphopt itself broke.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from graphopt.errors import GraphoptError, ModelError, UsageError
from graphopt.printable import printable

_COMPLAINT: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and kind.__name__ == "ClickException"
)
"""What the argument parser raises; it is public under this name alone, and in a package that depends on the version."""

TRACEBACK = "GRAPHOPT_TRACEBACK"
"""The environment variable with which a bug shows its traceback instead of one line."""

_MOST = 300
"""Characters of a message that nobody wrote for users."""

DIFFERENT, USAGE, MODEL, BROKEN, INTERRUPTED = 1, 2, 3, 4, 130


class _Guarded(TyperGroup):
    """Turns what graphopt raises into one line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GraphoptError as error:
            _say(" ".join(str(error).split()))
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            # Whoever read our output has gone; what Python writes while it ends must not complain again.
            sys.stderr.close()
            raise typer.Exit(0) from None
        except OSError as error:
            # Full disks, folders without permission, files that vanish: nobody's mistake in the code.
            place = f" {error.filename}" if error.filename else ""
            _say(f"cannot use{place}: {error.strerror or error}")
            raise typer.Exit(MODEL) from None
        except MemoryError:
            _say("out of memory")
            raise typer.Exit(BROKEN) from None
        except KeyboardInterrupt as error:
            sys.stderr.write("graphopt: interrupted\n")
            raise typer.Exit(next(iter(error.args), INTERRUPTED)) from None
        except (typer.Exit, typer.Abort, _COMPLAINT):
            raise
        except Exception as error:
            if os.environ.get(TRACEBACK):
                raise
            kind = type(error).__name__
            _say(f"a bug of graphopt ({kind}: {_first(error)}); run it again with {TRACEBACK}=1 for the full report")
            raise typer.Exit(BROKEN) from None


def _say(message: str) -> None:
    sys.stderr.write(f"graphopt: error: {printable(message)}\n")


def _first(error: Exception) -> str:
    """The beginning of what an exception says, on one line."""
    return " ".join(str(error)[:_MOST].split())


def end_in_order() -> None:
    """Let a request to end, or a terminal that goes, do what Ctrl-C does: remove what is under way, then end."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def exit_code(error: GraphoptError) -> int:
    """The exit code that tells who can fix an error."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, ModelError):
        return MODEL
    return BROKEN


app = typer.Typer(
    cls=_Guarded,
    help="Optimize ONNX models, prove it, and compare with every other optimizer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from graphopt.cli.version import show

        show()
        raise typer.Exit(0)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _register() -> None:
    from graphopt.cli import (
        auditing,
        catalogue,
        comparing,
        demonstrating,
        explaining,
        optimizing,
        passwise,
        planning,
        profiling,
        tuning,
    )

    app.command("optimize")(optimizing.optimize)
    app.command("audit")(auditing.audit)
    app.command("audit-passes")(passwise.audit_passes)
    app.command("verify")(comparing.verify)
    app.command("diff")(comparing.diff)
    app.command("passes")(catalogue.passes)
    app.command("explain")(explaining.explain)
    app.command("bisect")(explaining.bisect)
    app.command("profile")(profiling.profile)
    app.command("layout")(planning.layout)
    app.command("tune")(tuning.tune)
    app.command("demo")(demonstrating.demo)


_register()
