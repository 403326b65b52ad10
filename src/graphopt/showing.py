"""Display of results: printed, in a notebook, as JSON, as an HTML page."""

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
    """A mixin for results with `__rich_console__` and `to_dict`, from which all other forms follow."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """The result as an HTML page, as in a terminal, without scripts and style sheets."""
        from html import escape

        return _PAGE.format(title=escape(f"graphopt {type(self).__name__.lower()}"), body=html_of(self))

    def _repr_html_(self) -> str:
        return html_of(self)

    def __str__(self) -> str:
        out = console(file=io.StringIO(), width=_WIDTH)
        out.print(self)
        return str(out.file.getvalue()).rstrip("\n")  # type: ignore[attr-defined]  # a StringIO


def html_of(*renderables: Any) -> str:
    """Objects that rich can print, as an HTML fragment without scripts or style sheets."""
    out = console(file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True)
    for renderable in renderables:
        out.print(renderable)
    return out.export_html(inline_styles=True, code_format=_FORMAT)
