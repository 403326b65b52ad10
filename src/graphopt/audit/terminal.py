"""An audit on the terminal: as many columns as there is room for."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphopt.audit import columns
from graphopt.audit.columns import Column
from graphopt.audit.record import Audit, Row

_WIDTH_OF_TEXT = 120
_NARROW = 60
_OPERATORS = 24


def render_audit(audit: Audit, width: int) -> Iterator[Any]:
    """The parts of the report, top to bottom."""
    yield Text(_heading(audit), style="bold")
    yield Text(_conditions(audit), style="dim")
    yield Text("")
    yield _table("What each did, and what it cost", audit.rows, columns.cost_columns(audit), width)
    yield _table("What its output is worth", audit.rows, columns.worth_columns(audit), width)
    yield from _remarks(audit)
    operators = _operators(audit, width)
    if operators is not None:
        yield operators
    yield Text(
        f"base: {audit.baseline}. Times are medians with half the 99 % interval; within 3 %, or where the interval "
        "of the ratio reaches across 1, it is a tie. error: as run here; oracle: without ONNX Runtime's optimizer.",
        style="dim",
    )


def to_text(audit: Audit, width: int = _WIDTH_OF_TEXT) -> str:
    """The report as plain text."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, no_color=True, highlight=False).print(audit)
    return buffer.getvalue()


def _heading(audit: Audit) -> str:
    shapes = ", ".join(f"{name} {shape}" for name, shape in audit.inputs.items())
    return f"{audit.model}: {shapes}"


def _conditions(audit: Audit) -> str:
    threads = " and ".join(map(str, audit.threads))
    plural = "s" if audit.threads != (1,) else ""
    return f"{threads} thread{plural}; {audit.machine}"


def _table(title: str, rows: Sequence[Row], wanted: Sequence[Column], width: int) -> Table:
    shown = _fitting(rows, wanted, width)
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, collapse_padding=True
    )
    table.add_column("", no_wrap=width >= _NARROW, overflow="fold")
    for column in shown:
        table.add_column(column.title, justify="right", overflow="fold", no_wrap=column.weight < 4)
    for row in rows:
        style = "red" if not row.ok else "bold" if row.tool == "graphopt" else ""
        table.add_row(row.name, *(column.cell(row) for column in shown), style=style)
    hidden = [column.title for column in _filled(rows, wanted) if column not in shown and column.title]
    if hidden:
        table.caption = f"no room for: {', '.join(hidden)}; see --json"
        table.caption_justify = "left"
    return table


def _filled(rows: Sequence[Row], wanted: Sequence[Column]) -> list[Column]:
    """The columns that have anything in them."""
    return [column for column in wanted if any(column.cell(row) != columns.ABSENT for row in rows)]


def _fitting(rows: Sequence[Row], wanted: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit, the most dispensable left out first."""
    shown = _filled(rows, wanted)
    names = max((len(row.name) for row in rows), default=0)

    def needed() -> int:
        cells = (max(len(column.title), *(len(column.cell(row)) for row in rows)) for column in shown)
        return names + sum(min(30, cell) + 2 for cell in cells)

    while rows and needed() > width and any(column.weight for column in shown):
        shown.remove(max(shown, key=lambda column: column.weight))
    return shown


def _remarks(audit: Audit) -> Iterator[Text]:
    for row in audit.rows:
        text = columns.failure(row)
        if text:
            yield Text(f"{row.name}: {text}", style="red" if not row.ok else "yellow")
    for note in audit.notes:
        yield Text(f"note: {note}", style="yellow")


def _operators(audit: Audit, width: int) -> Table | None:
    names, counts = columns.operator_rows(audit)
    if not counts:
        return None
    table = Table(title="Operators", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    room = width - max(len(op) for op, _ in counts[:_OPERATORS])
    shown = 0
    for name in names:
        room -= max(5, *(len(word) for word in name.split())) + 1
        if room < 0:
            break
        table.add_column(name.replace(" ", "\n"), justify="right")
        shown += 1
    for op, row in counts[:_OPERATORS]:
        cells = [
            Text(str(n) if n else "·", style="" if n == row[0] else "green" if n < row[0] else "yellow") for n in row
        ]
        table.add_row(op, *cells[:shown])
    left = len(counts) - _OPERATORS
    if left > 0 or shown < len(names):
        parts = [f"{left} more operators"] if left > 0 else []
        parts += [f"no room for {', '.join(names[shown:])}"] if shown < len(names) else []
        table.caption, table.caption_justify = f"{'; '.join(parts)}; see --json", "left"
    return table
