"""The representation of a run in a notebook: two small tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Protocol

from graphopt.audit.columns import size
from graphopt.printable import counted


class Counts(Protocol):
    """A model in numbers."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""

    @property
    def ops(self) -> Mapping[str, int]:
        """The count of each operator."""

    @property
    def bytes(self) -> int:
        """Size of the constants."""


def run_html(before: Counts, after: Counts, hits: Mapping[str, int], seconds: float) -> str:
    """One run of a pipeline as two small tables.

    Args:
        before: the model before the run.
        after: the model after the run.
        hits: how often each pass fired.
        seconds: time of the run.
    """
    head = (
        f"<b>{before.nodes:,} → {after.nodes:,} nodes</b>, constants {size(before.bytes)} → {size(after.bytes)}, "
        f"{counted(sum(hits.values()), 'rewrite')} in {seconds:.2f} s"
    )
    ops = [op for op in {**before.ops, **after.ops} if before.ops.get(op, 0) != after.ops.get(op, 0)]
    ops.sort(key=lambda op: after.ops.get(op, 0) - before.ops.get(op, 0))
    tables = [
        _html_table(("operator", "before", "after"), [(op, before.ops.get(op, 0), after.ops.get(op, 0)) for op in ops]),
        _html_table(("pass", "fired"), list(hits.items())),
    ]
    cells = "".join(f'<td style="vertical-align:top">{table}</td>' for table in tables)
    return f"<p>{head}</p><table><tr>{cells}</tr></table>"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
