"""The columns of an audit as text: one definition for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from graphopt.audit.statistics import Spread

if TYPE_CHECKING:
    from graphopt.audit.record import Audit, Row

ABSENT = "-"
Cell = Callable[["Row"], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: its heading.
        cell: the text of a row.
        weight: how dispensable it is in a narrow table: 0 always stays.
    """

    title: str
    cell: Cell
    weight: int = 0


def cost_columns(audit: Audit) -> list[Column]:
    """The columns on the result of each optimizer and its cost."""
    return [
        Column("nodes", lambda row: ABSENT if row.contents is None else f"{row.contents.nodes:,}"),
        Column("operators", lambda row: ABSENT if row.contents is None else str(len(row.contents.ops)), 3),
        Column("parameters", lambda row: ABSENT if row.contents is None else count(row.contents.parameters), 2),
        Column("file", lambda row: ABSENT if row.contents is None else size(row.contents.file_bytes), 1),
        Column("optimize", lambda row: duration(row.seconds)),
        Column("memory", lambda row: ABSENT if row.peak_bytes is None else size(row.peak_bytes), 1),
        Column("lost", lambda row: str(row.losses) if row.losses is not None and str(row.losses) else ABSENT, 4),
        Column("valid", _valid, 2),
    ]


def worth_columns(audit: Audit) -> list[Column]:
    """The columns on the speed of each output."""
    columns = [
        Column("start", lambda row: spread(row.start), 1),
        Column("start ratio", lambda row: speedup(row.start_speedup), 2),
    ]
    for threads in audit.threads:
        title = "latency" if len(audit.threads) == 1 else f"latency, {threads} thr."
        columns.append(Column(title, lambda row, t=threads: spread(row.latency.get(t))))  # type: ignore[misc]  # `t` is bound
        columns.append(Column("against base", lambda row, t=threads: against(row, t, audit)))  # type: ignore[misc]  # `t` is bound
    columns += [
        Column("error", lambda row: number(row.max_abs), 2),
        Column("relative", lambda row: number(row.max_rel), 1),
        Column("oracle", lambda row: row.verification or ABSENT),
    ]
    if audit.metric:
        columns.append(Column(audit.metric, lambda row: number(row.metric)))
    return columns


def legend(audit: Audit) -> str:
    """What the columns mean."""
    oracle = {row.verification for row in audit.rows}
    return (
        f"base: {audit.baseline}. Times are medians with half the 99 % interval; within 3 %, or where the interval "
        "of the ratio reaches across 1, it is a tie. error: as run here; oracle: without ONNX Runtime's optimizer."
        + (" special: only inputs with NaN or infinities differ." if "special" in oracle else "")
    )


def against(row: Row, threads: int, audit: Audit) -> str:
    """The speed-up with its verdict."""
    found = row.speedup.get(threads)
    if found is None:
        return ABSENT
    if row.name == audit.baseline:
        return "base"
    verdict = found.verdict()
    return f"{found.median:.2f}x" + (" tie" if verdict == "tie" else "")


def speedup(found: Spread | None) -> str:
    """A speed-up."""
    return ABSENT if found is None else f"{found.median:.2f}x"


def spread(found: Spread | None) -> str:
    """Milliseconds with half the width of their confidence interval, if there is one."""
    if found is None:
        return ABSENT
    width = f" ±{100 * found.uncertainty:.0f}%" if isfinite(found.uncertainty) else ""
    return f"{milliseconds(found.median)}{width}"


def milliseconds(value: float) -> str:
    """A time with three significant digits."""
    if value >= 1e4:
        return f"{value / 1e3:.1f} s"
    if value >= 100:
        return f"{value:.0f} ms"
    return f"{value:.3g} ms" if value >= 0.1 else f"{value * 1e3:.3g} µs"


def duration(seconds: float | None) -> str:
    """Seconds."""
    return ABSENT if seconds is None else milliseconds(seconds * 1e3) if seconds < 1 else f"{seconds:.2f} s"


def size(value: int) -> str:
    """Bytes."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}" if amount < 100 else f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"


def signed(value: int) -> str:
    """Bytes with their sign."""
    return f"{'-' if value < 0 else '+'}{size(abs(value))}" if value else "0"


def count(value: int) -> str:
    """A count, abbreviated."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= 0.9995 * limit and value >= 1000:  # 999,600 is 1M, not 1,000k
            return f"{value / limit:.3g}{unit}" if value < 999.5 * limit else f"{value / limit:,.0f}{unit}"
    return str(value)


def number(value: float | None) -> str:
    """A small number."""
    if value is None:
        return ABSENT
    return "0" if value == 0 else f"{value:.2g}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.4g}"


def _valid(row: Row) -> str:
    return ABSENT if row.valid is None else "yes" if row.valid else "no"


def failure(row: Row) -> str:
    """Why a row has no result or a wrong one; "" if it is right."""
    if row.status != "ok":
        return f"{row.status}: {row.message}" if row.message else row.status
    if row.verification in ("mismatch", "inconclusive"):
        return f"{row.verification}: {row.message}"
    return row.message


def operator_rows(audit: Audit) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """Operator counts: the names of the rows that have contents, and each operator with its count in each."""
    shown = [row for row in audit.rows if row.contents is not None and row.name != audit.baseline]
    total: dict[str, int] = {}
    for row in shown:
        assert row.contents is not None
        for op, times in row.contents.ops.items():
            total[op] = max(total.get(op, 0), times)
    first = shown[0].contents.ops if shown and shown[0].contents is not None else {}
    ops = sorted(total, key=lambda op: (-first.get(op, 0), -total[op], op))
    counts = [(op, [row.contents.ops.get(op, 0) if row.contents else 0 for row in shown]) for op in ops]
    return [row.name for row in shown], counts
