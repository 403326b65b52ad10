"""The page of a pass, from its record and its golden cases: one source for the terminal and for `docs/passes`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from graphopt.errors import UsageError
from graphopt.pipeline import Registry
from graphopt.rewrite import PatternRule, Rule
from graphopt.testing import Case, cases_of

WIDTH = 80
_MOST_LINES = 24
_HEAD = "# Passes\n\nWritten by `graphopt passes --write"
_KINDS = {
    "keeps": "declines",
    "shared": "shared values",
    "captured": "captured values",
    "commuted": "either order",
}


@dataclass(frozen=True, slots=True)
class Page:
    """Everything about one pass.

    Attributes:
        record: the declarations of the pass, as plain data.
        example: the first case in which it fires, if its cases are installed.
        keeps: each reason for which it declines in a case, with the names of those cases.
        others: the other cases by kind: opsets, shared and captured values.
    """

    record: dict[str, Any]
    example: Case | None
    keeps: dict[str, list[str]]
    others: dict[str, list[str]]

    @classmethod
    def of(cls, rule: type[Rule], owner: str) -> Page:
        """The page of a pass."""
        found = [case for case in cases_of(rule) if "KEEPS" in case.head or "FIRES" in case.head]  # blessed ones
        fires = [case for case in found if case.path.stem.startswith("fires")]
        short = sorted(fires, key=lambda case: (case.before.count("\n") > _MOST_LINES, "DOC" not in case.head))
        keeps: dict[str, list[str]] = {}
        others: dict[str, list[str]] = {}
        for case in found:
            kind, _, what = case.path.stem.partition("_")
            if kind == "keeps":
                keeps.setdefault(case.head.get("KEEPS") or "no match", []).append(what.replace("_", " "))
            elif kind != "fires":
                others.setdefault(_KINDS.get(kind, kind), []).append(what.replace("_", " "))
        return cls(record(rule, owner), short[0] if short else None, keeps, others)

    def facts(self) -> Iterator[tuple[str, str]]:
        """Name and value of each fact."""
        given = self.record
        yield "family", given["family"]
        yield "level", given["level"] if given["default"] else f"{given['level']}, only when named"
        yield "numerics", given["numerics"]
        yield "opsets", given["opsets"]
        yield "form", given["form"]
        if given["operators"]:
            yield "operators", ", ".join(given["operators"])
        for peer, theirs in given["peers"].items():
            yield f"in {peer}", ", ".join(theirs)
        yield "from", f"{given['owner']} ({given['module']})"

    def explanation(self) -> str:
        """The documentation without its first line."""
        return str(self.record["documentation"].partition("\n")[2]).strip()

    def to_text(self) -> str:
        """For a terminal, at most `WIDTH` wide except for the models."""
        parts = [self.record["name"], _filled(self.record["summary"])]
        left = max(len(key) for key, _ in self.facts())
        parts.append("\n".join(_hanging(f"{key:{left}}  ", value) for key, value in self.facts()))
        if self.explanation():
            parts.append(_paragraphs(self.explanation()))
        if self.record["pattern"]:
            lines = (_hanging("    ", line) for line in self.record["pattern"].splitlines())
            parts += ["What it looks for:", "\n".join(lines)]
        if self.example is not None:
            parts += ["Example: before", _indented(self.example.before), "after", _indented(self.example.after or "")]
        if self.keeps:
            parts.append("It declines, and says:\n" + "\n".join(_hanging("  - ", line) for line in self._reasons()))
        if self.others:
            parts.append("Other cases:\n" + "\n".join(_hanging("  - ", line) for line in self._others()))
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """As Markdown, for the documentation."""
        parts = [f"# {self.record['name']}", _filled(self.record["summary"])]
        parts.append("\n".join(f"- {key}: `{value}`" for key, value in self.facts()))
        if self.explanation():
            parts.append(_paragraphs(self.explanation()))
        if self.record["pattern"]:
            parts += ["## Pattern", f"```text\n{self.record['pattern']}\n```"]
        if self.example is not None:
            parts += ["## Example", f"```text\n{self.example.before}\n```", "becomes"]
            parts.append(f"```text\n{self.example.after or ''}\n```")
        if self.keeps:
            parts += ["## When it declines", "\n".join(_hanging("- ", line) for line in self._reasons())]
        if self.others:
            parts += ["## Other cases", "\n".join(_hanging("- ", line) for line in self._others())]
        return "\n\n".join(parts) + "\n"

    def _reasons(self) -> list[str]:
        return [f"{reason} ({', '.join(sorted(names))})" for reason, names in sorted(self.keeps.items())]

    def _others(self) -> list[str]:
        return [
            f"{kind}: {', '.join(name or 'plain' for name in names)}" for kind, names in sorted(self.others.items())
        ]


def record(rule: type[Rule], owner: str) -> dict[str, Any]:
    """The declarations of a pass, as plain data."""
    return {
        "name": rule.name,
        "summary": rule.summary(),
        "family": rule.family,
        "level": str(rule.level),
        "numerics": str(rule.numerics),
        "opsets": rule.opsets or "all",
        "default": rule.default,
        "form": next(base.__name__ for base in rule.__mro__ if base.__module__ == "graphopt.rewrite.rule"),
        "operators": list(getattr(rule(), "ops", ())),
        "pattern": str(rule().compiled) if issubclass(rule, PatternRule) else "",
        "peers": {peer: [theirs for _, theirs in named] for peer, named in groupby(rule.equivalents(), itemgetter(0))},
        "owner": owner,
        "module": rule.__module__,
        "documentation": inspect.cleandoc(rule.__doc__ or ""),
    }


def write_pages(known: Registry, folder: Path) -> dict[Path, str]:
    """The files of the reference: an index, and a page for each pass.

    Args:
        known: the passes.
        folder: the folder of the files.

    Returns:
        Path and contents of each; nothing is written.
    """
    pages = [Page.of(rule, known.owner(rule.name)) for rule in known.rules()]
    files = {folder / f"{page.record['name']}.md": page.to_markdown() for page in pages}
    return {folder / "README.md": _index(pages), **files}


def written_before(folder: Path) -> list[Path]:
    """The pages that the index in a folder lists, if there is one; other files were not written by this command.

    Raises:
        UsageError: the folder has another README.md, which the index would replace.
    """
    index = folder / "README.md"
    if not index.exists():
        return []
    text = index.read_text(encoding="utf-8", errors="replace")
    if not text.startswith(_HEAD):
        raise UsageError(f"{index} is not an index of passes; expected a folder of its own for the pages")
    return [folder / f"{name}.md" for name in re.findall(r"^\| \[(\w+)\]\(\1\.md\)", text, re.MULTILINE)]


def _index(pages: Sequence[Page]) -> str:
    lines = [f"{_HEAD} docs/passes`; `graphopt passes NAME` shows a page."]
    for family in dict.fromkeys(page.record["family"] for page in pages):
        lines += ["", f"## {family}", "", "| pass | level | numerics | what it does |", "|---|---|---|---|"]
        for page in pages:
            given = page.record
            if given["family"] == family:
                level = given["level"] if given["default"] else "when named"
                name = given["name"]
                lines.append(f"| [{name}]({name}.md) | {level} | {given['numerics']} | {given['summary']} |")
    return "\n".join(lines) + "\n"


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _hanging(start: str, text: str) -> str:
    indent = " " * len(start)
    return textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _paragraphs(text: str) -> str:
    """Plain paragraphs rewrapped; lists and indented blocks unchanged."""
    found = []
    for block in text.split("\n\n"):
        plain = not any(line.startswith((" ", "*", "-", "|")) for line in block.splitlines())
        found.append(_filled(" ".join(block.split())) if plain else block)
    return "\n\n".join(found)


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
