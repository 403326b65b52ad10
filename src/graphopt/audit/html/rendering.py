"""Templates of pages, and data for their scripts."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.printable import printable
from graphopt.system.extras import require

_FOLDER = Path(__file__).resolve().parent


def render(template: str, **values: Any) -> str:
    """A page from a template of this folder, with the common style."""
    text: str = _environment().get_template(template).render(style=source("report.css"), **values)
    return text


def source(name: str) -> str:
    """A file of this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def script_data(value: Any) -> str:
    """Plain data as text for a script element of a page."""
    # A `<` in a name must neither end nor open an element.
    return json.dumps(_shown(value), separators=(",", ":")).replace("<", "\\u003c")


def _shown(value: Any) -> Any:
    """A value as the page shows it: strings without unprintable characters."""
    if isinstance(value, dict):
        return {_shown(key): _shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(each) for each in value]
    # Text that the template marks as safe is not from a model.
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
