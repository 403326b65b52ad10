"""A console of rich that shows names literally, so that no name of a model can control the terminal."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from copy import copy
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from graphopt.printable import printable


class Lines:
    """Text of several lines: its line feeds are kept, unlike those of a `Text`."""

    def __init__(self, text: str, style: str = "") -> None:
        self._text = Text(printable(text, lines=True), style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        return self._text.__rich_console__(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return self._text.__rich_measure__(console, options)


class PrintingConsole(Console):
    """Escapes unprintable characters in all rendered text; see `graphopt.printable.console`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, without characters that control a terminal."""
        if isinstance(renderable, str):
            renderable = Text(printable(renderable))
        elif isinstance(renderable, Text):
            renderable = _escaped(renderable)
        elif getattr(renderable, "title_justify", None) and getattr(renderable, "title", None):
            # A table wraps its title at its own width; a separate line has the width of the terminal.
            table: Any = copy(renderable)
            yield from self.render(Text(str(table.title), table.title_style or ""), options)
            table.title, renderable = None, table
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, lines=True), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise an error for the command to handle; rich would end the process with exit code 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render_str(self, text: str, **settings: Any) -> Text:
        """Text from a string, such as a title or a cell of a table."""
        return super().render_str(printable(text), **settings)


def _escaped(text: Text) -> Text:
    plain = text.plain
    if plain.isprintable():
        return text
    shown = text.blank_copy(printable(plain))
    shown.style = text.style
    return shown
