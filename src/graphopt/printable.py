"""Text that a model brings along, made safe to show: names may hold anything, a terminal's commands among it.

All that goes to a terminal, a Markdown table or an HTML page goes through here. JSON needs none of it: it is written in
ASCII, with its own escapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text with whatever would not show as itself written as an escape like `\x1b` or `\u202e`.

    Control characters, line and paragraph separators, marks that turn the direction of writing, characters without
    width, and bytes that are no UTF-8 are among them.

    Args:
        text: the text.
        lines: whether line feeds stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 rewrite`, `2,000 rewrites`.

    Args:
        number: how many.
        noun: of one.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def markdown(text: str) -> str:
    """The text as a cell of a Markdown table shows it: no HTML, no links, no end of the cell before its end."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def console(**settings: Any) -> Console:
    """A console of rich that shows text as it is: no markup, no emoji codes, nothing that is not printable.

    Line feeds end lines in a `Lines`; in any other text they are escaped.

    Args:
        **settings: for rich's `Console`.
    """
    from graphopt.terminal import PrintingConsole

    return PrintingConsole(markup=False, emoji=False, highlight=False, **settings)
