"""What an audit comes to, in one sentence."""

from __future__ import annotations

from graphopt.audit.record import Audit, Row
from graphopt.audit.statistics import TIE


def sentence(audit: Audit) -> str:
    """What graphopt's best result gains over the best of the others, or that nothing can be said; "" without both.

    What is best is judged at the first number of threads, by the speed-up over the baseline.
    """
    threads = next(iter(audit.threads), 1)
    own = _best(audit, threads, own=True)
    other = _best(audit, threads, own=False)
    if own is None or other is None:
        return ""
    mine, theirs = own.speedup[threads], other.speedup[threads]
    ratio = mine.median / theirs.median
    best = f"the best of the others ({other.name}){_nodes(own, other)}"
    if min(mine.rounds, theirs.rounds) < 2:
        return f"One round does not tell whether {own.name} is faster than {best}."
    if abs(ratio - 1) <= TIE or (mine.low <= theirs.high and theirs.low <= mine.high):
        return f"{own.name} is as fast as {best}."
    if ratio > 1:
        return f"{own.name} runs {ratio:.2f} times as fast as {best}."
    return f"{other.name} runs {1 / ratio:.2f} times as fast as graphopt's best ({own.name}){_nodes(other, own)}."


def _best(audit: Audit, threads: int, *, own: bool) -> Row | None:
    rows = [row for row in audit.rows if (row.tool == "graphopt") == own and row.ok and threads in row.speedup]
    return max(rows, key=lambda row: row.speedup[threads].median, default=None)


def _nodes(one: Row, other: Row) -> str:
    if one.contents is None or other.contents is None:
        return ""
    return f", with {one.contents.nodes:,} nodes against {other.contents.nodes:,}"
