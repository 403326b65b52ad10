"""An audit on the terminal: columns that do not fit side by side are stacked, so that 80 columns suffice."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.columns import Columns
from rich.table import Table
from rich.text import Text

from graphopt.audit import columns
from graphopt.audit.columns import Column
from graphopt.audit.record import Audit, Row
from graphopt.audit.verdict import sentence
from graphopt.printable import console
from graphopt.terminal import Lines

_WIDTH_OF_TEXT = 120
_NARROW = 60
_OPERATORS = 24
_LONG = 4
"""Weight of columns with sentences."""


def render_audit(audit: Audit, width: int) -> Iterator[Any]:
    """The parts of the report, top to bottom."""
    yield Text(_heading(audit), style="bold")
    yield Text(_conditions(audit), style="dim")
    yield Text("")
    yield from _tables("What each did, and what it cost", audit.rows, columns.cost_columns(audit), width)
    yield from _tables("What its output is worth", audit.rows, columns.worth_columns(audit), width)
    remarks = list(_remarks(audit))
    yield from ([*remarks, Text("")] if remarks else [])
    yield from _operators(audit, width)
    yield Text(columns.legend(audit), style="dim")
    found = sentence(audit)
    yield from ([Text(""), Text(found, style="bold")] if found else [])


def to_text(audit: Audit, width: int = _WIDTH_OF_TEXT) -> str:
    """The report as plain text."""
    buffer = io.StringIO()
    console(file=buffer, width=width, no_color=True).print(audit)
    return buffer.getvalue()


def _heading(audit: Audit) -> str:
    shapes = ", ".join(f"{name} {shape}" for name, shape in audit.inputs.items())
    return f"{audit.model}: {shapes}"


def _conditions(audit: Audit) -> str:
    threads = " and ".join(map(str, audit.threads))
    plural = "s" if audit.threads != (1,) else ""
    return f"{threads} thread{plural}; {audit.machine}"


def _tables(title: str, rows: Sequence[Row], wanted: Sequence[Column], width: int) -> Iterator[Any]:
    """The most important columns, and below them the others."""
    left = _filled(rows, wanted)
    while left:
        shown = _fitting(rows, left, width)
        yield _table(title, rows, shown, width)
        yield Text("")
        left = [column for column in left if column not in shown]
        title = f"{title.removesuffix(', continued')}, continued"


def _table(title: str, rows: Sequence[Row], shown: Sequence[Column], width: int) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, collapse_padding=True
    )
    table.add_column("", no_wrap=width >= _NARROW, overflow="fold")
    for column in shown:
        long = column.weight >= _LONG
        table.add_column(column.title, justify="left" if long else "right", overflow="fold", no_wrap=not long)
    for row in rows:
        style = "red" if not row.ok else "bold" if row.tool == "graphopt" else ""
        table.add_row(row.name, *(column.cell(row) for column in shown), style=style)
    return table


def _filled(rows: Sequence[Row], wanted: Sequence[Column]) -> list[Column]:
    """The columns that are not empty."""
    return [column for column in wanted if any(column.cell(row) != columns.ABSENT for row in rows)]


def _fitting(rows: Sequence[Row], wanted: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit side by side, at least one; the most dispensable are left for another table."""
    shown = list(wanted)
    names = max((len(row.name) for row in rows), default=0)

    def needed() -> int:
        cells = (max(len(column.title), *(len(column.cell(row)) for row in rows)) for column in shown)
        return names + sum(min(30, cell) + 2 for cell in cells)

    while rows and len(shown) > 1 and needed() > width:
        # Of equal weights the last is removed first: columns are in reading order.
        shown.remove(max(reversed(shown), key=lambda column: column.weight))
    return shown


def _remarks(audit: Audit) -> Iterator[Text]:
    for row in audit.rows:
        text = columns.failure(row)
        if text:
            yield Text(f"{row.name}: {text}", style="red" if not row.ok else "yellow")
    for note in audit.notes:
        yield Text(f"note: {note}", style="yellow")


def _operators(audit: Audit, width: int) -> Iterator[Any]:
    """The count of each operator in each result; rows are labelled with letters if their names do not fit."""
    names, counts = columns.operator_rows(audit)
    if not counts:
        return
    counts, left = counts[:_OPERATORS], len(counts) - _OPERATORS
    heads = [name.replace(" ", "\n") for name in names]
    needed = sum(max(5, *(len(word) for word in name.split())) + 1 for name in names)
    if needed > width - max(len(op) for op, _ in counts):
        heads = [chr(ord("a") + place % 26) for place in range(len(names))]
        counts = [(op.removeprefix("com.microsoft."), row) for op, row in counts]
    table = Table(
        title="Operators", title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("", overflow="fold")
    for head in heads:
        table.add_column(Lines(head), justify="right")
    for op, row in counts:
        table.add_row(op, *(_count(number, row[0]) for number in row))
    yield table
    if heads[0] == "a":
        yield Columns([Text(f"{head}: {name}", style="dim") for head, name in zip(heads, names, strict=True)])
    if left > 0:
        yield Text(f"{left} more operators; see --json", style="dim")
    yield Text("")


def _count(number: int, before: int) -> Text:
    style = "" if number == before else "green" if number < before else "yellow"
    return Text(str(number) if number else "·", style=style)
