"""A session's report in the terminal and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from graphopt.fuzzing.findings import Finding, SessionReport
from graphopt.fuzzing.verdicts import KINDS
from graphopt.printable import counted
from graphopt.terminal import Lines

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .7rem;border-bottom:1px solid #8884;text-align:right}
td:first-child,th:first-child{text-align:left}pre{background:#8882;padding:.7rem;overflow-x:auto}"""


def summary(report: SessionReport) -> str:
    """One line: the number of models, the seed, the rate."""
    rate = report.models / report.seconds if report.seconds else 0.0
    left_out = sum(report.discarded.values())
    text = f"{counted(report.models, 'model')} of seed {report.seed} in {report.seconds:.0f} s ({rate:.1f} a second)"
    text += f", {left_out} more said nothing" if left_out else ""
    return text + (", interrupted" if report.interrupted else "")


def verdict_table(report: SessionReport) -> Any:
    """Faults by optimizer and kind, with the kinds that occurred."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=summary(report), title_justify="left", title_style="")
    table.add_column("optimizer", no_wrap=True)
    met = [kind for kind in KINDS if any(report.verdicts[name][kind] for name in report.subjects)]
    for kind in met or ["faults"]:
        table.add_column(kind, justify="right")
    for name in report.subjects:
        counts = report.verdicts[name]
        table.add_row(name, *(str(counts[kind] or "·") for kind in met or ["faults"]))
    return table


def tables(report: SessionReport) -> Iterator[Any]:
    """The tables that the terminal shows at the end."""
    yield verdict_table(report)
    lines = [line for finding in report.findings for line in finding_lines(finding)]
    if lines:
        yield Lines("\n".join(lines))


def finding_lines(finding: Finding) -> Iterator[str]:
    """A finding as text: the optimizer, the cause, and the model that shows it."""
    yield ""
    yield f"{finding.subject}: {finding.kind}, {finding.cause} (met {counted(finding.count, 'time')})"
    yield f"  {finding.message}"
    yield f"  {finding.command}"
    yield from (f"    {line}" for line in finding.text.splitlines())


def page(report: SessionReport) -> str:
    """A self-contained page."""
    head = "".join(f"<th>{escape(kind)}</th>" for kind in KINDS)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{report.verdicts[name][kind] or '·'}</td>" for kind in KINDS)
        + "</tr>"
        for name in report.subjects
    )
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    found = "".join(
        f"<h2>{escape(f.subject)}: {escape(f.kind)}, {escape(f.cause)}</h2>"
        f"<p>{escape(f.message)} (met {counted(f.count, 'time')})</p>"
        f"<pre>{escape(f.text)}</pre><p><code>{escape(f.command)}</code></p>"
        for f in report.findings
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>graphopt fuzz</title><style>{_STYLE}</style>"
        f"<h1>What random models show</h1><p>{escape(summary(report))}. {escape(versions)}.</p>"
        f"<table><tr><th>optimizer</th>{head}</tr>{rows}</table>{found}\n"
    )
