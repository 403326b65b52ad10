"""A run of passes as lines and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from graphopt.audit.columns import size
from graphopt.terminal import Lines

if TYPE_CHECKING:
    from graphopt.results import Result
    from graphopt.verify import Report


def render_run(result: Result, report: Report | None, *, events: bool = False) -> Iterator[Any]:
    """What was done to a model, for a terminal.

    Args:
        result: the run.
        report: what the oracle said, if it was asked.
        events: list every rewrite.
    """
    before, after = result.before, result.after
    yield Text(
        f"{before.nodes} -> {after.nodes} nodes, constants {size(before.bytes)} -> {size(after.bytes)}, "
        f"{len(result.events)} rewrites in {result.seconds:.2f} s",
        style="bold",
    )
    ops = [op for op in {**before.ops, **after.ops} if before.ops.get(op, 0) != after.ops.get(op, 0)]
    ops.sort(key=lambda op: after.ops.get(op, 0) - before.ops.get(op, 0))
    if ops:
        yield _table(("operator", "before", "after"), [(op, before.ops.get(op, 0), after.ops.get(op, 0)) for op in ops])
    if result.hits:
        yield _table(("pass", "fired"), list(result.hits.items()))
    if events:
        yield from (Text(str(event)) for event in result.events)
    if result.zeroed:
        bound = max(event.bound for event in result.events)
        yield Text(
            f"{result.zeroed:,} weights too small to matter set to zero: no operator's "
            f"output changes by more than {bound:.1e} times its largest input"
        )
    if result.unread.tensors:
        yield Text(str(result.unread), "yellow")
    for f in result.failures:
        yield Text(f"pass {f.rule} failed at {f.node} and was undone: {f.error}", "yellow")
    if report is not None:
        yield Lines(f"verified: {report.summary()}", style="green" if report.ok else "red")


def _table(titles: tuple[str, ...], rows: list[tuple[object, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(titles):
        table.add_column(title, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    return table
