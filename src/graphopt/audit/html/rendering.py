"""Templates of pages, and data for the scripts in them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.printable import printable
from graphopt.system.extras import require

_FOLDER = Path(__file__).resolve().parent


def render(template: str, **values: Any) -> str:
    """A page from a template of this folder, with the style of all pages."""
    text: str = _environment().get_template(template).render(style=source("report.css"), **values)
    return text


def source(name: str) -> str:
    """A file of this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def script_data(value: Any) -> str:
    """Plain data as it may stand in a page's script element."""
    # A `<` in a name must not end, or open, an element.
    return json.dumps(_shown(value), separators=(",", ":")).replace("<", "\\u003c")


def _shown(value: Any) -> Any:
    """What the page shows in the place of a value: names with nothing in them that is not printable."""
    if isinstance(value, dict):
        return {_shown(key): _shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(each) for each in value]
    # What the template marks as safe is our own, not a model's.
    return printable(value, lines=True) if type(value) is str else value


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2 = require("jinja2")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
