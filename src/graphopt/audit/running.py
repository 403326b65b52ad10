"""A run of passes as lines and tables, formatted here: importing a terminal library takes longer than most runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from graphopt.audit.columns import size
from graphopt.printable import counted, printable

if TYPE_CHECKING:
    from graphopt.results import Result
    from graphopt.verify import Report

Line = tuple[str, str]
"""Text that is safe to show, including line feeds, and a style: the name of a colour, `bold`, or "" for none."""


def run_lines(result: Result, report: Report | None, *, events: bool = False) -> Iterator[Line]:
    """The changes to a model, line by line.

    Args:
        result: the run.
        report: the oracle's report, if it was asked.
        events: list every rewrite.
    """
    before, after = result.before, result.after
    yield (
        f"{before.nodes} -> {after.nodes} nodes, constants {size(before.bytes)} -> {size(after.bytes)}, "
        f"{counted(len(result.events), 'rewrite')} in {result.seconds:.2f} s",
        "bold",
    )
    ops = [op for op in {**before.ops, **after.ops} if before.ops.get(op, 0) != after.ops.get(op, 0)]
    ops.sort(key=lambda op: after.ops.get(op, 0) - before.ops.get(op, 0))
    if ops:
        counts: list[tuple[object, ...]] = [(op, before.ops.get(op, 0), after.ops.get(op, 0)) for op in ops]
        yield from _table(("operator", "before", "after"), counts)
    if result.hits:
        yield from _table(("pass", "fired"), list(result.hits.items()))
    if events:
        yield from ((printable(str(event)), "") for event in result.events)
    if result.zeroed:
        bound = max(event.bound for event in result.events)
        yield (
            f"{result.zeroed:,} weights too small to matter set to zero: no operator's "
            f"output changes by more than {bound:.1e} times its largest input",
            "",
        )
    if result.unread.tensors:
        yield printable(str(result.unread)), "yellow"
    if result.overridable:
        yield (
            f"{counted(result.overridable, 'initializer')} that callers may override, being inputs, too: no pass reads "
            "them without --constant-initializers",
            "yellow",
        )
    for f in result.failures:
        yield printable(f"pass {f.rule} failed at {f.node} and was undone: {f.error}"), "yellow"
    if report is not None:
        yield printable(f"verified: {report.summary()}", lines=True), "green" if report.ok else "red"


def render_run(result: Result, report: Report | None, *, events: bool = False) -> Iterator[Any]:
    """The lines for rich; see `run_lines`."""
    from graphopt.terminal import Lines

    return (Lines(text, style) for text, style in run_lines(result, report, events=events))


def _table(titles: tuple[str, ...], rows: list[tuple[object, ...]]) -> Iterator[Line]:
    """A table with the first column left-aligned and the numbers in the others right-aligned."""
    cells = [titles, *(tuple(printable(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        first, *others = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        aligned = [f"{cell.strip():>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first, *aligned]).rstrip(), "" if number else "bold"
