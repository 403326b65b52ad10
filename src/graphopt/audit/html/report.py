"""One self-contained HTML file: tables, charts, events, and the graph before and after. It needs no network."""

from __future__ import annotations

from typing import Any

from graphopt.audit import columns
from graphopt.audit.explaining import Explanation
from graphopt.audit.html.charts import Bar, bar_chart
from graphopt.audit.html.rendering import render, script_data, source
from graphopt.audit.inspecting import Inspection
from graphopt.audit.record import Audit, Row
from graphopt.audit.verdict import sentence
from graphopt.printable import counted


def audit_html(
    audit: Audit, explanation: Explanation | None = None, drawing: dict[str, Any] | None = None, explained: str = "",
) -> str:  # fmt: skip
    """The report of an audit.

    Args:
        audit: the audit.
        explanation: graphopt's run, for the event list.
        drawing: the result of `side_by_side`.
        explained: the row of that run.
    """
    return _render(
        title=f"graphopt audit: {audit.model}",
        heading=audit.model,
        subtitle=_conditions(audit),
        cards=audit_cards(audit),
        tables=audit_tables(audit),
        charts=audit_charts(audit),
        remarks=[(row.name, text, row.ok) for row in audit.rows if (text := columns.failure(row))],
        notes=audit.notes,
        operators=columns.operator_rows(audit),
        verdict=sentence(audit),
        legend=columns.legend(audit),
        explained=explained,
        explanation=explanation,
        drawing=drawing,
    )


def explanation_html(name: str, explanation: Explanation, drawing: dict[str, Any] | None = None) -> str:
    """The report of one run.

    Args:
        name: name of the model.
        explanation: the run.
        drawing: the result of `side_by_side`.
    """
    return _render(
        title=f"graphopt explain: {name}",
        heading=name,
        subtitle="{} -> {} nodes in {}".format(*explanation.nodes, counted(len(explanation.steps), "rewrite")),
        cards=[], tables=[], charts=[], remarks=[], notes=[], operators=([], []), explanation=explanation,
        drawing=drawing,
    )  # fmt: skip


def inspection_html(name: str, found: Inspection, drawing: dict[str, Any] | None = None) -> str:
    """The browser page of one model: its description, and its graphs to explore.

    Args:
        name: name of the model.
        found: its description.
        drawing: the result of `alone`.
    """
    return _render(
        title=f"graphopt inspect: {name}", heading=name, subtitle="", cards=[], tables=[], charts=[], remarks=[],
        notes=[], operators=([], []), explanation=None, drawing=drawing, facts=list(found.rows()),
    )  # fmt: skip


def audit_cards(audit: Audit) -> list[dict[str, str]]:
    """The most important figures: graphopt's best result beside the baseline."""
    base = next((row for row in audit.rows if row.name == audit.baseline), None)
    own = [row for row in audit.rows if row.tool == "graphopt" and row.ok]
    if base is None or not own:
        return []
    cards = []
    made = [row for row in own if row.contents is not None]
    smallest = min(made, key=lambda row: row.contents.nodes if row.contents else 0, default=None)
    if base.contents and smallest is not None and smallest.contents:
        nodes = f"{base.contents.nodes:,} → {smallest.contents.nodes:,}"
        cards.append(_card("nodes", nodes, smallest.name))
        files = f"{columns.size(base.contents.file_bytes)} → {columns.size(smallest.contents.file_bytes)}"
        cards.append(_card("file", files, smallest.name))
    for threads in audit.threads:
        timed = [row for row in own if threads in row.latency]
        if threads in base.latency and timed:
            best = min(timed, key=lambda row: row.latency[threads].median)
            pair = f"{_time(base.latency[threads].median)} → {_time(best.latency[threads].median)}"
            title = f"latency, {counted(threads, 'thread')}"
            cards.append(_card(title, pair, f"{best.name}: {columns.against(best, threads, audit)}"))
    started = [row for row in own if row.start is not None]
    if base.start and started:
        best = min(started, key=lambda row: row.start.median if row.start else 0.0)
        assert best.start is not None
        pair = f"{_time(base.start.median)} → {_time(best.start.median)}"
        cards.append(_card("session start", pair, f"{best.name}: {columns.speedup(best.start_speedup)}"))
    return [*cards, *_right(audit)]


def _right(audit: Audit) -> list[dict[str, str]]:
    """How many outputs the oracle found right; empty if it was not asked."""
    made = [row for row in audit.rows if row.tool != "raw"]
    if not any(row.verification for row in made):
        return []
    others = [row.name for row in made if not (row.ok and row.verification in ("equal", "close", "special"))]
    text = f"{len(made) - len(others)} of {len(made)}"
    wrong = any(not row.ok for row in made)
    remark = f"not {', '.join(others)}" if others else "all of them"
    return [_card("correct results", text, remark, "bad" if wrong else "peer")]


def _card(title: str, value: str, remark: str, kind: str = "own") -> dict[str, str]:
    return {"title": title, "value": value, "remark": remark, "kind": kind}


def _time(value: float) -> str:
    return columns.milliseconds(value)


def audit_tables(audit: Audit) -> list[dict[str, Any]]:
    """Both tables as text: title, heading, and rows with their class."""
    found = []
    for title, wanted in (
        ("What each did, and what it cost", columns.cost_columns(audit)),
        ("What its output is worth", columns.worth_columns(audit)),
    ):
        shown = [column for column in wanted if any(column.cell(row) != columns.ABSENT for row in audit.rows)]
        rows = [(_kind(row, audit), row.name, [column.cell(row) for column in shown]) for row in audit.rows]
        found.append({"title": title, "head": [column.title for column in shown], "rows": rows})
    return found


def audit_charts(audit: Audit) -> list[tuple[str, str]]:
    """Charts of latency for each thread count, of nodes, and of session start."""
    charts = []
    for threads in audit.threads:
        bars = [
            Bar(row.name, s.median, columns.milliseconds(s.median), s.low, s.high, _kind(row, audit))
            for row in audit.rows
            if (s := row.latency.get(threads)) is not None
        ]
        base = next(
            (
                row.latency[threads].median
                for row in audit.rows
                if row.name == audit.baseline and threads in row.latency
            ),
            None,
        )
        title = f"Latency, {counted(threads, 'thread')} (line: {audit.baseline})"
        charts.append((title, bar_chart(title, bars, base)))
    nodes = [
        Bar(row.name, row.contents.nodes, str(row.contents.nodes), kind=_kind(row, audit))
        for row in audit.rows
        if row.contents is not None and row.name != audit.baseline
    ]
    charts.append(("Nodes", bar_chart("Nodes", nodes)))
    starts = [
        Bar(row.name, s.median, columns.milliseconds(s.median), s.low, s.high, _kind(row, audit))
        for row in audit.rows
        if (s := row.start) is not None
    ]
    charts.append(("Session start", bar_chart("Session start", starts)))
    costs = [
        Bar(row.name, row.seconds, columns.duration(row.seconds), kind=_kind(row, audit))
        for row in audit.rows
        if row.seconds is not None
    ]
    charts.append(("Time to optimize", bar_chart("Time to optimize", costs)))
    return [(title, chart) for title, chart in charts if chart]


def _kind(row: Row, audit: Audit) -> str:
    if not row.ok:
        return "bad"
    return "own" if row.tool == "graphopt" else "base" if row.name == audit.baseline else "peer"


def _conditions(audit: Audit) -> str:
    shapes = ", ".join(f"{name} {shape}" for name, shape in audit.inputs.items())
    return f"{shapes}; threads {', '.join(map(str, audit.threads))}; {audit.machine}"


def _render(**values: Any) -> str:
    drawing = values.pop("drawing")
    for name, nothing in (("facts", []), ("verdict", ""), ("legend", ""), ("explained", "")):
        values.setdefault(name, nothing)
    data = script_data(drawing) if drawing is not None else ""
    two = drawing is not None and "after" in drawing
    script = source("canvas.js") + source("viewer.js")
    return render("report.html.j2", data=data, two=two, script=script, signed=columns.signed, **values)
