"""The command line: commands, and what becomes of errors.

Exit codes: 0 all is well; 1 a difference was found, or a verification failed; 2 wrong usage; 3 a model or file that
cannot be used; 4 a pass or graphopt itself broke; 130 and more: ended by a signal, or by whoever read its output.
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
"""Characters of a message that nobody wrote for users."""

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
"""Every command by name; its module is imported when something of it is asked for."""


def run(words: Sequence[str]) -> int:
    """Run a command line and say what became of it.

    Args:
        words: what follows `graphopt`.

    Returns:
        The exit code.

    Raises:
        Exception: a bug, where the environment asks for its traceback.
    """
    try:
        code = _dispatched(words)
        sys.stdout.flush()  # what cannot be written is an error of the command, too
        return code
    except GraphoptError as error:
        _say(" ".join(str(error).split()))
        return exit_code(error)
    except BrokenPipeError:
        # Whoever read our output has gone: 0 and 1 would say that they have the result, and what it is.
        _let_go()
        return UNREAD
    except OSError as error:
        _let_go()
        # Full disks, folders without permission, files that vanish: nobody's mistake in the code.
        what = f"cannot use {error.filename}" if error.filename else "cannot read or write"
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
        _say(f"{what}: {'it is no folder' if no_folder else error.strerror or error}")
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
    except SystemExit as ending:  # the parser's, after help
        return int(ending.code or 0)
    return 0


def _let_go() -> None:
    """Drop what standard output does not take, or Python tries once more while it ends, and complains."""
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
    del values["config"]  # what it states is among the other values now
    with silence(values.pop("quiet")), _telling(values.pop("verbose")):
        command.function(**values)


@contextmanager
def _telling(wanted: bool) -> Iterator[None]:
    """Show what the library logs while this holds."""
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
    """The commands, or some of them, a line for each, broken where the terminal ends."""
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
    with suppress(OSError):  # nobody need be there to read it; the exit code tells
        sys.stderr.write(f"graphopt: {text}\n")


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """What is left out of third parties, in one line; other warnings as Python shows them."""
    if issubclass(category, PluginWarning):
        return f"graphopt: warning: {printable(str(message))}\n"
    return _format_warning(message, category, filename, lineno, line)


_format_warning = warnings.formatwarning


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
