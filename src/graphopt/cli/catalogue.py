"""`graphopt passes`: the catalogue, and the page of one pass."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphopt.cli.console import show, show_json
from graphopt.errors import UsageError


def passes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One pass; all when left out.")] = None,
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    level: Annotated[str | None, typer.Option(help="Only passes that this level adds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the passes there are, or show everything about one."""
    from graphopt.pipeline import registry

    known = registry()
    if name is not None:
        record = _record(known.rule_class(name), known.owner(name))
        show_json(record) if as_json else show(*_page(record))
        return
    records = [_record(known.rule_class(each), known.owner(each)) for each in known.names()]
    for key, wanted in (("family", family), ("level", level)):
        choices = list(dict.fromkeys(record[key] for record in records))
        if wanted is not None and wanted not in choices:
            raise UsageError(f"unknown {key} {wanted!r}; expected one of {', '.join(choices)}")
        records = [record for record in records if wanted in (None, record[key])]
    show_json(records) if as_json else show(_table(records))


def _record(rule: Any, owner: str) -> dict[str, Any]:
    import inspect

    return {
        "name": rule.name,
        "summary": rule.summary(),
        "family": rule.family,
        "level": str(rule.level),
        "numerics": str(rule.numerics),
        "opsets": rule.opsets or "all",
        "default": rule.default,
        "form": next(base.__name__ for base in rule.__mro__ if base.__module__ == "graphopt.rewrite.rule"),
        "operators": list(getattr(rule, "ops", ())) if isinstance(getattr(rule, "ops", ()), tuple) else [],
        "peers": dict(rule.peers),
        "owner": owner,
        "module": rule.__module__,
        "documentation": inspect.cleandoc(rule.__doc__ or ""),
    }


def _table(records: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("pass", "family", "level", "numerics"):
        table.add_column(title, no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for record in records:
        style = "" if record["default"] else "dim"
        table.add_row(*(record[key] for key in ("name", "family", "level", "numerics", "summary")), style=style)
    return table


def _page(record: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_row("family", record["family"])
    facts.add_row("level", record["level"] if record["default"] else f"{record['level']}, only when named")
    facts.add_row("numerics", record["numerics"])
    facts.add_row("opsets", record["opsets"])
    facts.add_row("form", record["form"])
    if record["operators"]:
        facts.add_row("operators", ", ".join(record["operators"]))
    for peer, counterpart in record["peers"].items():
        facts.add_row(f"in {peer}", counterpart)
    facts.add_row("from", f"{record['owner']} ({record['module']})")
    _, _, rest = record["documentation"].partition("\n")
    lines: list[Any] = [Text(record["name"], style="bold"), Text(record["summary"]), Text(""), facts]
    return [*lines, Text(""), Text(rest.strip())] if rest.strip() else lines
