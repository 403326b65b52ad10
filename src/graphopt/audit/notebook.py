"""What notebooks show: the terminal's tables, as HTML."""

from __future__ import annotations

import io
from typing import Any

_WIDTH = 130
_FORMAT = '<pre style="line-height:1.25;font-family:ui-monospace,Menlo,Consolas,monospace">{code}</pre>'


def notebook_html(*renderables: Any) -> str:
    """Anything that rich can print, as an HTML fragment without scripts or style sheets."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_terminal=True, highlight=False)
    for renderable in renderables:
        console.print(renderable)
    return console.export_html(inline_styles=True, code_format=_FORMAT)


class InNotebook:
    """Mixed into what has `__rich_console__`, so that notebooks show it."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return notebook_html(self)
