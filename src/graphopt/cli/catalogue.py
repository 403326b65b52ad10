"""`graphopt passes`: the list of passes, the page of one pass, and the table of other optimizers' passes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

from graphopt.cli.arguments import Argument, Option
from graphopt.cli.console import show, show_json
from graphopt.cli.options import ReportForm
from graphopt.errors import UsageError
from graphopt.system.files import write_text


def passes(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="One pass. Default: all.")] = None,
    *,
    family: Annotated[str | None, Option(help="Only this family.")] = None,
    level: Annotated[str | None, Option(help="Only passes that this level adds.")] = None,
    peers: Annotated[bool, Option("--peers", help="Every pass of other optimizers, and its equivalents.")] = False,
    write: Annotated[str | None, Option(help="Write a page for each pass into this folder.")] = None,
    index: Annotated[str | None, Option(help="Write the needs of this package's passes to its index.")] = None,
    form: ReportForm,
) -> None:
    """List the passes, or show everything about one."""
    from graphopt.cli.reference import Page, record
    from graphopt.pipeline import registry

    asked = {"NAME": name, "--peers": peers, "--write": write, "--index": index}
    for choice in ({"--family": family}, {"--level": level}):
        _check_asked(asked | choice)
    if form.as_markdown and name is None and not peers:
        raise UsageError("--markdown needs NAME or --peers; --write makes a page of each pass")
    known = registry()
    if peers:
        _show_peers(form)
    elif write is not None:
        _write(write)
    elif index is not None:
        _write_index(index)
    elif name is not None:
        page = Page.of(known.rule_class(name), known.owner(name))
        if form.as_json:
            show_json(page.record)
        else:
            sys.stdout.write(page.to_markdown() if form.as_markdown else page.to_text())
    else:
        records = [record(rule, known.owner(rule.name)) for rule in known.rules()]
        for key, wanted in (("family", family), ("level", level)):
            choices = list(dict.fromkeys(each[key] for each in records))
            if wanted is not None and wanted not in choices:
                raise UsageError(f"unknown {key} {wanted!r}; expected one of {', '.join(choices)}")
            records = [each for each in records if wanted in (None, each[key])]
        show_json(records) if form.as_json else show(*_listed(records))


def _check_asked(asked: dict[str, Any]) -> None:
    """Reject two options of which one would be silently ignored.

    Raises:
        UsageError: naming both.
    """
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")


def _show_peers(form: ReportForm) -> None:
    from rich.text import Text

    from graphopt.audit.equivalents import equivalents

    found = equivalents()
    if form.as_json:
        show_json(found.to_dict())
    elif form.as_markdown:
        sys.stdout.write(found.to_markdown())
    else:
        lines = [(f"{row.peer} {row.theirs}: ", ", ".join(row.ours) or f"none, {row.reason}") for row in found.rows]
        show(*(Text.assemble(theirs, (ours, "dim" if ours.startswith("none, ") else "")) for theirs, ours in lines))
        show(Text(found.summary(), style="bold"))


def _write(folder: str) -> None:
    from pathlib import Path

    from graphopt.cli.reference import write_pages, written_before
    from graphopt.pipeline import registry

    Path(folder).mkdir(parents=True, exist_ok=True)
    former, files = written_before(Path(folder)), write_pages(registry(), Path(folder))
    for path in former:
        if path not in files:
            path.unlink(missing_ok=True)
    for path, text in files.items():
        write_text(str(path), text)
    show(f"{len(files)} pages in {folder}")


def _listed(records: list[dict[str, Any]]) -> Iterator[Any]:
    """Each pass with its summary below, by family."""
    from rich.padding import Padding
    from rich.text import Text

    families = dict.fromkeys(each["family"] for each in records)
    for family in families:
        yield Text(family, style="bold")
        for each in records:
            if each["family"] == family:
                level = each["level"] if each["default"] else "only when named"
                yield Text.assemble(f"  {each['name']}  ", (f"({level}, {each['numerics']})", "dim"))
                yield Padding(Text(each["summary"]), (0, 0, 0, 6))


def _write_index(package: str) -> None:
    from graphopt.pipeline.registry import index_of

    path, text = index_of(package)
    write_text(str(path), text)
    show(f"{path}: {text.count(chr(10)) - 2} passes")
