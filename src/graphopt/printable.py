"""Text from a model, made safe to show: names may contain anything, including terminal escape sequences.

All text for a terminal, a Markdown table or an HTML page passes through here. JSON does not need it: it is written in
ASCII, with its own escapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text with unprintable characters replaced with escapes such as `\x1b` or `\u202e`.

    Among these are control characters, line and paragraph separators, marks of the writing direction, characters
    without width, and bytes that are not UTF-8.

    Args:
        text: the text.
        lines: whether to keep line feeds.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 rewrite`, `2,000 rewrites`.

    Args:
        number: the number.
        noun: the noun in the singular.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def markdown(text: str) -> str:
    """The text for a cell of a Markdown table: HTML, links and `|` are escaped."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def console(**settings: Any) -> Console:
    """A console of rich that shows text literally: no markup, no emoji codes, and unprintable characters escaped.

    Line feeds are kept in a `Lines`; in any other text they are escaped.

    Args:
        **settings: for rich's `Console`.
    """
    from graphopt.terminal import PrintingConsole

    return PrintingConsole(markup=False, emoji=False, highlight=False, **settings)
