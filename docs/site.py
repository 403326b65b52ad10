"""What the site adds to the pages while it is built."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

from graphopt.cli.app import COMMANDS, run

_HELP = "<!-- the help of every command -->"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)]*)\)")


def on_config(config: Any) -> Any:
    """Fill in the lists of pages that are one for each file of a folder."""
    docs = Path(config["docs_dir"])
    config["nav"] = _filled(config["nav"], docs)
    return config


def _filled(entry: Any, docs: Path) -> Any:
    if isinstance(entry, list):
        return [_filled(each, docs) for each in entry]
    if isinstance(entry, dict):
        return {title: _filled(inside, docs) for title, inside in entry.items()}
    if entry.endswith("/"):
        pages = sorted((docs / entry).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
        return [page.relative_to(docs).as_posix() for page in pages]
    return entry


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Write the help of commands where it belongs, and show what is in the repository and not on the site as text."""
    if _HELP in markdown:
        markdown = markdown.replace(_HELP, _help())
    here, docs = Path(page.file.abs_src_path).parent, Path(config["docs_dir"]).resolve()

    def shown(link: re.Match[str]) -> str:
        target = (here / link[2].partition("#")[0]).resolve()
        inside = target.is_relative_to(docs) and target.is_file()
        return link[0] if inside else f"{link[1]} (`{os.path.relpath(target, docs.parent)}` in the repository)"

    return _LINK.sub(shown, markdown)


def _help() -> str:
    os.environ["COLUMNS"] = "100"
    parts = []
    for name in COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            run([*name.split(), "--help"])
        parts.append(f"## {name}\n\n```text\n{out.getvalue()}```\n")
    return "\n".join(parts)
