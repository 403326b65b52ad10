"""How results show themselves: printed, in a notebook, as JSON, as a page of HTML."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from typing import Any

from graphopt.printable import console

_WIDTH = 130
_FORMAT = '<pre style="line-height:1.25;font-family:ui-monospace,Menlo,Consolas,monospace">{code}</pre>'
_PAGE = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n{body}\n</html>\n'


class Shown(ABC):
    """Mixed into a result that has `__rich_console__` and `to_dict`: the rest follows from these."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """As plain data."""

    def to_json(self, indent: int | None = 2) -> str:
        """As JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """As a page of HTML: what a terminal would show, without scripts and style sheets."""
        from html import escape

        return _PAGE.format(title=escape(f"graphopt {type(self).__name__.lower()}"), body=html_of(self))

    def _repr_html_(self) -> str:
        return html_of(self)

    def __str__(self) -> str:
        out = console(file=io.StringIO(), width=_WIDTH)
        out.print(self)
        return str(out.file.getvalue()).rstrip("\n")  # type: ignore[attr-defined]  # a StringIO


def html_of(*renderables: Any) -> str:
    """Anything that rich can print, as an HTML fragment without scripts or style sheets."""
    out = console(file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True)
    for renderable in renderables:
        out.print(renderable)
    return out.export_html(inline_styles=True, code_format=_FORMAT)
