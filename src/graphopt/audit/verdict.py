"""The conclusion of an audit, in one sentence."""

from __future__ import annotations

from graphopt.audit.record import Audit, Row
from graphopt.audit.statistics import TIE, Spread
from graphopt.printable import counted


def sentence(audit: Audit) -> str:
    """The gain of graphopt's best result over the best of the others, or that there is no conclusion; "" without both.

    The best result is chosen at the first number of threads, by the speed-up over the baseline; a result of graphopt's
    that is significantly faster than the others precedes one with a better median only.
    that is surely faster than the others comes before one whose median alone is better.
    """
    threads = next(iter(audit.threads), 1)
    mine = _results(audit, threads, own=True)
    other = max(_results(audit, threads, own=False), key=lambda row: row.speedup[threads].median, default=None)
    if not mine or other is None:
        return ""
    theirs = other.speedup[threads]
    own = max(mine, key=lambda row: (row.speedup[threads].low > theirs.high, row.speedup[threads].median))
    return _compared(own, own.speedup[threads], other, theirs)


def _compared(own: Row, mine: Spread, other: Row, theirs: Spread) -> str:
    ratio = mine.median / theirs.median
    best = f"the best of the others ({other.name}){_nodes(own, other)}"
    if min(mine.rounds, theirs.rounds) < 2:
        return f"One round does not tell whether {own.name} is faster than {best}."
    if abs(ratio - 1) <= TIE:
        return f"{own.name} is as fast as {best}."
    if mine.low <= theirs.high and theirs.low <= mine.high:
        slower = "faster" if ratio > 1 else "slower"
        return f"Times varied too much to tell whether {own.name} is {slower} than {best}."
    if ratio > 1:
        return f"{own.name} runs {ratio:.2f} times as fast as {best}."
    return f"{other.name} runs {1 / ratio:.2f} times as fast as graphopt's best ({own.name}){_nodes(other, own)}."


def _results(audit: Audit, threads: int, *, own: bool) -> list[Row]:
    return [row for row in audit.rows if (row.tool == "graphopt") == own and row.ok and threads in row.speedup]


def _nodes(one: Row, other: Row) -> str:
    if one.contents is None or other.contents is None:
        return ""
    return f", with {counted(one.contents.nodes, 'node')} against {other.contents.nodes:,}"
