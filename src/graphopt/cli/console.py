"""Terminal output: reports to standard output, progress to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from graphopt.errors import UsageError
from graphopt.system.files import destination, write_text

Progress = Callable[[str, float], None]

_QUIET = ContextVar("quiet", default=False)
"""Whether the current command shows neither progress nor a report."""


@contextmanager
def silence(wanted: bool) -> Iterator[None]:
    """Suppress progress and reports inside the block; JSON is for programs, and is still printed."""
    before = _QUIET.set(wanted)
    try:
        yield
    finally:
        _QUIET.reset(before)


def quiet() -> bool:
    """Whether reports are suppressed; to skip making one."""
    return _QUIET.get()


def show(*renderables: Any, stderr: bool = False) -> None:
    """Print to standard output with rich: tables, and colours if the terminal has them."""
    if quiet():
        return
    from rich.text import Text

    from graphopt.printable import console
    from graphopt.terminal import Lines

    out = console(stderr=stderr)
    for renderable in renderables:
        # Lines of a list are for grep, and paths for copying: they are not wrapped.
        out.print(renderable, soft_wrap=isinstance(renderable, (str, Text, Lines)))


_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}


def show_lines(lines: Iterable[tuple[str, str]], *, stderr: bool = False) -> None:
    """Print lines of safe text, each with the name of a style, "" for none.

    Colours are only for terminals, and not if `NO_COLOR` is set.
    """
    if quiet():
        return
    out = sys.stderr if stderr else sys.stdout
    coloured = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for text, style in lines:
        code = _CODES.get(style) if coloured else None
        out.write(f"{text}\n" if code is None else f"\x1b[{code}m{text}\x1b[0m\n")


def plain_table(*titles: str, words: int = 1, **settings: Any) -> Any:
    """A table without rules: the first `words` columns left-aligned, the numbers in the others right-aligned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, **settings)
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number < words else "right", overflow="fold")
    return table


_SCHEMA = 1
"""The version of the JSON that commands print, for reports without their own version."""


def show_json(data: Any) -> None:
    """Print data as JSON to standard output; an object includes its schema version."""
    import json

    if isinstance(data, dict):
        data = {"schema": _SCHEMA, **data}
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal; yields a function to report to."""
    if _QUIET.get() or not sys.stderr.isatty():
        yield lambda what, part: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from graphopt.printable import console

    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda what, part: bar.update(task, description=what, completed=part)


def read_source(name: str) -> str | bytes:
    """A path unchanged; for `-` all of standard input.

    Raises:
        UsageError: standard input is a terminal.
    """
    if name != "-":
        return name
    if sys.stdin.isatty():
        raise UsageError("`-` reads a model from standard input, which is a terminal")
    from graphopt.ir.files import read_stream

    return read_stream(sys.stdin.buffer, "standard input")


def read_sources(names: Sequence[str]) -> list[str | bytes]:
    """The sources of several models; see `read_source`.

    Raises:
        UsageError: more than one is standard input.
    """
    if names.count("-") > 1:
        raise UsageError("`-` twice: standard input holds one model")
    return [read_source(name) for name in names]


def write_page(place: str, text: str) -> None:
    """Write a requested file besides the report, and say so on standard error.

    Raises:
        ModelError: it cannot be written.
    """
    write_text(place, text)
    show(f"wrote {place}", stderr=True)


def check_place(path: str | None, *read: str | None) -> None:
    """Reject, before any measurement, a file that cannot be written or that is one of the inputs.

    Args:
        path: the file; None for no file.
        *read: models, whose files of weights are inputs too, and other files; None for no file.

    Raises:
        ModelError: it is a folder, or its folder does not exist, or it is read-only.
        UsageError: it is one of the inputs.
    """
    if path is None:
        return
    place = destination(Path(path))
    if not place.exists():
        return
    from graphopt.ir.files import files_named_by

    for name in read:
        if name in (None, "-") or not Path(name).is_file():
            continue
        if any(file.exists() and place.samefile(file) for file in (Path(name), *files_named_by(Path(name)))):
            raise UsageError(f"{path} is read, and would be replaced; expected another file")
