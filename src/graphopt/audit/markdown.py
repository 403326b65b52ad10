"""An audit as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphopt.audit import columns
from graphopt.audit.columns import Column
from graphopt.audit.record import Audit, Row
from graphopt.audit.verdict import sentence
from graphopt.printable import markdown


def audit_to_markdown(audit: Audit) -> str:
    """The tables of an audit."""
    shapes = ", ".join(f"{markdown(name)} {shape}" for name, shape in audit.inputs.items())
    parts = [
        f"## {markdown(audit.model)}",
        f"Inputs: {shapes}. Threads: {', '.join(map(str, audit.threads))}. {audit.machine}.",
        "### What each did, and what it cost",
        _table(audit.rows, columns.cost_columns(audit)),
        "### What its output is worth",
        _table(audit.rows, columns.worth_columns(audit)),
        f"Base: {audit.baseline}. Medians with half the 99 % interval; ratios within 3 % are ties.",
    ]
    found = sentence(audit)
    parts += [f"**{markdown(found)}**"] if found else []
    remarks = [f"- {row.name}: {markdown(text)}" for row in audit.rows if (text := columns.failure(row))]
    remarks += [f"- {markdown(note)}" for note in audit.notes]
    if remarks:
        parts.append("\n".join(remarks))
    names, counts = columns.operator_rows(audit)
    parts += ["### Operators", table(["", *names], ((op, *(str(n) for n in row)) for op, row in counts))]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], wanted: Sequence[Column]) -> str:
    shown = [column for column in wanted if any(column.cell(row) != columns.ABSENT for row in rows)]
    body = ((row.name, *(column.cell(row) for column in shown)) for row in rows)
    return table(["", *(column.title for column in shown)], body)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, with all columns but the first right-aligned."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---", *("--:" for _ in head[1:])]) + "|"]
    lines += ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
