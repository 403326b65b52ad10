"""A pass audit as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphopt.audit.columns import ABSENT, duration
from graphopt.audit.markdown import table as markdown_table
from graphopt.audit.passes.record import ORDER, PassAudit, PassRow, Side
from graphopt.printable import markdown

_STYLE = {
    "ours wrong": "bold red",
    "weaker": "yellow",
    "peer wrong": "cyan",
    "stronger": "green",
    "same": "",
    "idle": "dim",
}
_HEAD = ("peer's pass", "graphopt's pass", "verdict", "nodes run", "ours", "theirs", "same graph", "time", "why")
_WIDE = 140
"""Width of the columns; a narrower terminal gets a list."""


def render_passes(found: PassAudit, width: int) -> Iterator[Any]:
    """One table for a single model; for several models a table of verdicts by pass, and the rows that need a reason."""
    yield Text(_headline(found), style="bold")
    rows = [row for row in found.rows if row.verdict != "idle"]
    if len(found.models) == 1:
        yield from _comparisons(rows, width)
    else:
        yield from _summary(found, width)
        notable = [row for row in rows if row.verdict in ("ours wrong", "weaker", "peer wrong")]
        if notable:
            yield from _comparisons(notable, width, models=True)
    idle = Counter(row.peer for row in found.rows if row.verdict == "idle")
    if idle and len(found.models) == 1:
        yield Text(
            "nothing to do here: " + ", ".join(f"{count} passes of {peer}" for peer, count in idle.items()), style="dim"
        )
    for what, reason in found.failures.items():
        yield Text(f"{what}: {reason}", style="red")


def _headline(found: PassAudit) -> str:
    verdicts = found.verdicts()
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ORDER if verdicts[verdict])
    models = found.models[0] if len(found.models) == 1 else f"{len(found.models)} models"
    return f"{models}: {counts or 'no passes compared'}"


def cells(row: PassRow) -> list[str]:
    """A row as text."""
    same = ABSENT if row.isomorphic is None else "yes" if row.isomorphic else "no"
    times = f"{duration(row.ours.seconds)} / {duration(row.theirs.seconds)}"
    own = row.own_pass or "(the level)"
    return [
        f"{row.peer}: {row.peer_pass}", own, row.verdict, str(row.before), side(row.ours), side(row.theirs), same,
        times, row.reason,
    ]  # fmt: skip


def side(found: Side) -> str:
    """The result of one pass."""
    if found.status != "ok":
        return found.status
    if not found.fired:
        return ABSENT
    times = f" ({found.hits}x)" if found.hits else ""
    left = ", left some" if found.left else ""
    wrong = "" if found.numbers in ("", "equal", "close") else f", {found.numbers}"
    constant = f"+{found.nodes - found.live}" if found.nodes > found.live else ""
    return f"{found.live}{constant}{times}{left}{wrong}"


def _comparisons(rows: list[PassRow], width: int, *, models: bool = False) -> Iterator[Any]:
    ordered = sorted(rows, key=lambda row: (row.peer, ORDER.index(row.verdict)))
    if width >= _WIDE:
        yield _table(ordered, models=models)
        return
    for row in ordered:
        theirs, own, verdict, before, ours, of_theirs, same, times, why = cells(row)
        model = f"{row.model}: " if models else ""
        yield Text(f"{verdict:<10}  {model}{theirs}, here {own}", style=_STYLE[row.verdict])
        numbers = f"nodes {before}, ours {ours}, theirs {of_theirs}; same graph {same}; {times}"
        yield Padding(Text(f"{numbers}; {why}" if why else numbers), (0, 0, 0, 12))


def _table(rows: list[PassRow], *, models: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    head = ("model", *_HEAD) if models else _HEAD
    for title in head:
        table.add_column(title, overflow="fold", justify="right" if title in ("nodes run", "time") else "left")
    for row in rows:
        text = [row.model, *cells(row)] if models else cells(row)
        table.add_row(*text, style=_STYLE[row.verdict])
    return table


def _summary(found: PassAudit, width: int) -> Iterator[Any]:
    table = Table(box=None, pad_edge=False)
    table.add_column("peer's pass")
    table.add_column("graphopt's pass")
    for verdict in ORDER[:-1]:
        table.add_column(verdict, justify="right")
    for (peer, theirs, own), counts in by_pass(found).items():
        if not set(counts) - {"idle"}:
            continue
        worst = next(verdict for verdict in ORDER if counts[verdict])
        names = (f"{peer}: {theirs}", own or "(the level)")
        if width < _WIDE:
            told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ORDER[:-1] if counts[verdict])
            yield Text(f"{names[0]}, here {names[1]}: {told}", style=_STYLE[worst])
        numbers = (str(counts[verdict]) if counts[verdict] else "·" for verdict in ORDER[:-1])
        table.add_row(*names, *numbers, style=_STYLE[worst])
    if width >= _WIDE:
        yield table


def by_pass(found: PassAudit) -> dict[tuple[str, str, str], Counter[str]]:
    """Verdicts by pass over all models."""
    table: dict[tuple[str, str, str], Counter[str]] = {}
    for row in found.rows:
        table.setdefault((row.peer, row.peer_pass, row.own_pass), Counter())[row.verdict] += 1
    return table


def passes_to_markdown(found: PassAudit) -> str:
    """The report as Markdown."""
    parts = [f"## {markdown(_headline(found))}"]
    if len(found.models) == 1:
        parts.append(markdown_table(_HEAD, (cells(row) for row in found.rows if row.verdict != "idle")))
    else:
        head = ("peer's pass", "graphopt's pass", *ORDER[:-1])
        body = (
            (f"{peer}: {theirs}", own or "(the level)", *(str(counts[verdict]) for verdict in ORDER[:-1]))
            for (peer, theirs, own), counts in by_pass(found).items()
            if set(counts) - {"idle"}
        )
        parts.append(markdown_table(head, body))
        notable = [row for row in found.rows if row.verdict in ("ours wrong", "weaker", "peer wrong")]
        if notable:
            parts.append(markdown_table(("model", *_HEAD), ((row.model, *cells(row)) for row in notable)))
    return "\n\n".join(parts) + "\n"
