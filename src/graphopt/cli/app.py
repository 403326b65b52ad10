"""The command line: commands, and the handling of errors.

Exit codes: 0 success; 1 a difference was found, or a verification failed; 2 wrong usage; 3 an unusable model or file;
4 a pass or graphopt itself failed; 130 and more: ended by a signal, or by the reader of its output.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from graphopt.cli.arguments import Command, Exit
from graphopt.cli.console import silence
from graphopt.errors import GraphoptError, ModelError, PluginWarning, UsageError
from graphopt.printable import printable

TRACEBACK = "GRAPHOPT_TRACEBACK"
"""The environment variable with which a bug shows its traceback instead of one line."""

_MOST = 300
"""The most characters of a message that was not written for users."""

DIFFERENT, USAGE, MODEL, BROKEN, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141

_PLACES = {
    "optimize": "optimizing:optimize",
    "convert": "converting:convert",
    "audit": "auditing:audit",
    "corpus run": "corpus:run",
    "corpus report": "corpus:show_report",
    "corpus gate": "corpus:gate",
    "corpus merge": "corpus:merge",
    "audit-passes": "passwise:audit_passes",
    "verify": "comparing:verify",
    "check": "checking:check",
    "diff": "comparing:diff",
    "inspect": "inspecting:inspect",
    "passes": "catalogue:passes",
    "explain": "explaining:explain",
    "bisect": "explaining:bisect",
    "fuzz": "fuzzing:fuzz",
    "profile": "profiling:profile",
    "layout": "planning:layout",
    "tune": "tuning:tune",
    "demo": "demonstrating:demo",
    "completion": "completing:completion",
}

_HELP = ("-h", "--help")

COMMANDS = {name: Command(name, f"graphopt.cli.{place}") for name, place in _PLACES.items()}
"""Every command by name; its module is imported when it is used."""


def run(words: Sequence[str]) -> int:
    """Run a command line and handle its errors.

    Args:
        words: the words after `graphopt`.

    Returns:
        The exit code.

    Raises:
        Exception: a bug, if the environment asks for its traceback.
    """
    try:
        code = _dispatched(words)
        sys.stdout.flush()  # failing to write the output is an error of the command
        return code
    except GraphoptError as error:
        _say(" ".join(str(error).split()))
        return exit_code(error)
    except BrokenPipeError:
        # The reader of our output is gone: 0 and 1 would mean that it has the result.
        _let_go()
        return UNREAD
    except OSError as error:
        _let_go()
        # Full disks, missing permissions, vanished files: no bugs.
        what = f"cannot use {error.filename}" if error.filename else "cannot read or write"
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
        _say(f"{what}: {'it is not a folder' if no_folder else error.strerror or error}")
        return MODEL
    except MemoryError:
        _say("out of memory")
        return BROKEN
    except KeyboardInterrupt as error:
        _complain("interrupted")
        return int(next(iter(error.args), INTERRUPTED))
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        kind = type(error).__name__
        _say(f"a bug of graphopt ({kind}: {_first(error)}); run it again with {TRACEBACK}=1 for the full report")
        return BROKEN


def _dispatched(words: Sequence[str]) -> int:
    try:
        _dispatch(words)
    except Exit as ending:
        return ending.code
    except SystemExit as ending:  # raised by the parser after help
        return int(ending.code or 0)
    return 0


def _let_go() -> None:
    """Discard the unwritable part of standard output; Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _dispatch(words: Sequence[str]) -> None:
    name = next(iter(words), None)
    if name == "--version":
        from graphopt import __version__

        sys.stdout.write(f"graphopt {__version__}\n")
        return
    if name is None or name in _HELP:
        sys.stdout.write(overview())
        raise Exit(USAGE if name is None else 0)
    of_group = " ".join(words[:2])
    command, given = (COMMANDS[of_group], words[2:]) if of_group in COMMANDS else (COMMANDS.get(str(name)), words[1:])
    if command is None:
        import difflib

        group = [each for each in COMMANDS if each.partition(" ")[0] == name]
        if group and words[1:2] and words[1] in _HELP:
            sys.stdout.write(overview(group))
            return
        close = group or difflib.get_close_matches(str(name), COMMANDS, 2)
        hint = f"; did you mean {' or '.join(close)}?" if close else "; `graphopt --help` lists all"
        raise UsageError(f"unknown command {of_group if group else name!r}{hint}")
    values = command.parse(given)
    del values["config"]  # its values have been merged into the others
    with silence(values.pop("quiet")), _telling(values.pop("verbose")):
        command.function(**values)


@contextmanager
def _telling(wanted: bool) -> Iterator[None]:
    """Show the library's log messages inside the block."""
    if not wanted:
        yield
        return
    import logging

    logger, handler = logging.getLogger("graphopt"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("graphopt: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def overview(names: Sequence[str] = tuple(_PLACES)) -> str:
    """All commands or some, one line each, wrapped at the width of the terminal."""
    import shutil
    import textwrap

    width = max(map(len, names)) + 2
    room = max(width + 20, shutil.get_terminal_size().columns)
    about = "Optimize ONNX models, prove it, and compare with every other optimizer."
    lines = ["Usage: graphopt COMMAND ...", "", *textwrap.wrap(about, room), "", "Commands:"]
    broken = textwrap.TextWrapper(room, subsequent_indent=" " * (width + 2))
    for name in names:
        sentence = COMMANDS[name].text.partition("\n\n")[0].partition(". ")[0]
        lines += broken.wrap(f"  {name:<{width}}{sentence.rstrip('.')}")
    last = "graphopt COMMAND --help shows its options; graphopt --version the version."
    lines += ["", *textwrap.wrap(last, room)]
    return "\n".join(lines) + "\n"


def _say(message: str) -> None:
    _complain(f"error: {printable(message)}")


def _complain(text: str) -> None:
    with suppress(OSError):  # standard error may have no reader; the exit code remains
        sys.stderr.write(f"graphopt: {text}\n")


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Warnings about skipped plugins in one line; other warnings as Python shows them."""
    if issubclass(category, PluginWarning):
        return f"graphopt: warning: {printable(str(message))}\n"
    return _format_warning(message, category, filename, lineno, line)


_format_warning = warnings.formatwarning


def _first(error: Exception) -> str:
    """The beginning of an exception's message, on one line."""
    return " ".join(str(error)[:_MOST].split())


def end_in_order() -> None:
    """Let a termination request, or a closed terminal, do what Ctrl-C does: clean up, then end."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def exit_code(error: GraphoptError) -> int:
    """The exit code of an error, by who can fix it."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, ModelError):
        return MODEL
    return BROKEN
