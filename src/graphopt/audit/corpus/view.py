"""The report of a corpus as tables."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from graphopt.audit.columns import ABSENT, duration
from graphopt.audit.contestants import BASELINE, UNOPTIMIZED
from graphopt.audit.corpus.changes import Comparison
from graphopt.audit.corpus.report import CorpusReport, Standing
from graphopt.audit.markdown import table as markdown_table
from graphopt.printable import counted, markdown

STANDING = ("", "right", "wrong", "failed", "nodes left", "size left", "optimize")
SPEED = ("", "speed-up", "faster", "tie", "slower")
CHANGE = ("", "model", "contestant", "before", "after")
RELEASE = ("release", "contestant", "models", "right", "wrong", "failed", "nodes left", "size left", "optimize")
PASS = ("pass", "contestant", "models", "times", "nodes removed")
_MOST = 20


def render(report: CorpusReport) -> Iterator[Any]:
    """The parts of the report, top to bottom."""
    yield Text(heading(report), style="bold")
    yield _table("All models (nodes and size: geometric mean of what is left)", STANDING, standing_rows(report))
    for kind in report.kinds:
        title = f"Latency on {kind}, {counted(report.kinds[kind], 'model')} (geometric mean against the baseline)"
        yield _table(title, SPEED, speed_rows(report, kind))
    if report.releases:
        yield _table("Releases", release_head(report), list(release_rows(report)), words=2)
    firings = list(firing_rows(report))
    if firings:
        yield _table("Passes, those that remove most nodes first", PASS, firings[:_MOST], words=2)
        yield from _more(len(firings), "passes")
    operators = list(operator_rows(report))
    if operators:
        yield _table("Operators", ("", *operator_head(report)), operators[:_MOST])
        yield from _more(len(operators), "operators")
    faults = list(fault_rows(report))
    for line in faults[:_MOST]:
        yield Text(": ".join(filter(None, line)), style="red")
    yield from _more(len(faults), "faults")
    if report.changes is not None:
        yield from render_changes(report.changes)


def heading(report: CorpusReport) -> str:
    """The number of models, by status."""
    statuses = ", ".join(f"{number:,} {status}" for status, number in report.statuses.most_common())
    return f"{report.campaign.release}: {counted(report.statuses.total(), 'model')} ({statuses or 'none'})"


def standing_rows(report: CorpusReport) -> Iterator[list[str]]:
    """Each contestant's counts."""
    for each in report.standings:
        yield [
            each.name, f"{each.right:,}", f"{len(each.wrong):,}", f"{len(each.failed):,}", _percent(each.nodes.value),
            _percent(each.size.value), duration(each.seconds) if each.seconds else ABSENT,
        ]  # fmt: skip


def speed_rows(report: CorpusReport, kind: str) -> Iterator[list[str]]:
    """Each contestant's latency on one kind of machine."""
    for each in report.standings:
        speed = each.speed.get(kind)
        if speed is not None and speed.ratio.value is not None:
            counts = (len(speed.faster), len(speed.tie), len(speed.slower))
            yield [each.name, f"{speed.ratio.value:.2f}x", *(f"{count:,}" for count in counts)]


def release_head(report: CorpusReport) -> list[str]:
    """The columns of releases, with the times on each kind of machine."""
    kinds = [[f"speed-up, {kind}", "faster", "slower"] for kind in _timed(report)]
    return [*RELEASE, *itertools.chain.from_iterable(kinds)]


def release_rows(report: CorpusReport) -> Iterator[list[str]]:
    """Each contestant in each release."""
    for each in report.releases:
        cells = [
            each.release, each.contestant, f"{each.models:,}", f"{each.right:,}", f"{each.wrong:,}",
            f"{each.failed:,}", _percent(each.nodes), _percent(each.size),
            duration(each.seconds) if each.seconds else ABSENT,
        ]  # fmt: skip
        for kind in _timed(report):
            mean, faster, slower = each.speed.get(kind, (None, 0, 0))
            cells += [ABSENT, ABSENT, ABSENT] if mean is None else [f"{mean:.2f}x", f"{faster:,}", f"{slower:,}"]
        yield cells


def _timed(report: CorpusReport) -> list[str]:
    return sorted({kind for each in report.releases for kind in each.speed})


def firing_rows(report: CorpusReport) -> Iterator[list[str]]:
    """Each pass, for each contestant that runs it."""
    for each in report.firings:
        yield [each.name, each.contestant, f"{len(each.models):,}", f"{each.times:,}", f"{each.removed:,}"]


def operator_head(report: CorpusReport) -> list[str]:
    """The columns of operators: the number of models with it, and its counts before and after."""
    return ["models", "before", *(each.name for each in _results(report))]


def operator_rows(report: CorpusReport) -> Iterator[list[str]]:
    """The counts of each operator."""
    for each in report.operators:
        counts = (each.models, each.before, *(each.after[standing.name] for standing in _results(report)))
        yield [each.name, *(f"{count:,}" for count in counts)]


def fault_rows(report: CorpusReport) -> Iterator[list[str]]:
    """The faults: model, contestant or stage, error."""
    for standing in report.standings:
        yield from ([model, standing.name, f"wrong results: {how}"] for model, how in standing.wrong.items())
    for model, (status, how, at) in report.troubles.items():
        yield [model, at, f"{status}: {how}"]
    for standing in report.standings:
        yield from ([model, standing.name, how] for model, how in standing.failed.items())


def render_changes(found: Comparison) -> Iterator[Any]:
    """The changes, worst first."""
    yield Text(changes_heading(found), style="bold")
    rows = list(change_rows(found))
    if rows:
        yield _table("Changes, the worst first", CHANGE, rows[:_MOST], words=5)
        yield from _more(len(rows), "changes")


def changes_heading(found: Comparison) -> str:
    """The number of models compared between two releases, and of changes."""
    counts = Counter(each.what for each in found.changes)
    changed = ", ".join(f"{number:,} {what}" for what, number in counts.items()) or "nothing changed"
    elsewhere = f" ({found.untimed:,} timed on other kinds of machines)" if found.untimed else ""
    names = f"{found.new.release} against {found.old.release}"
    return f"{names}: {counted(found.compared, 'model')} in both{elsewhere}; {changed}"


def change_rows(found: Comparison) -> Iterator[list[str]]:
    """The rows of changes."""
    for each in found.changes:
        yield [each.what, each.name, each.contestant, each.before, each.after]


def to_markdown(report: CorpusReport) -> str:
    """The report as Markdown."""
    parts = [f"## {markdown(heading(report))}", markdown_table(STANDING, standing_rows(report))]
    for kind in report.kinds:
        parts += [f"### Latency on {markdown(kind)}", markdown_table(SPEED, speed_rows(report, kind))]
    if report.releases:
        parts += ["### Releases", markdown_table(release_head(report), release_rows(report))]
    parts += ["### Passes", markdown_table(PASS, firing_rows(report))]
    parts += ["### Operators", markdown_table(("", *operator_head(report)), operator_rows(report))]
    faults = ["- " + ": ".join(markdown(part) for part in line if part) for line in fault_rows(report)]
    parts += ["### Faults", "\n".join(faults)] if faults else []
    if report.changes is not None:
        parts += [f"### {markdown(changes_heading(report.changes))}"]
        parts += [markdown_table(CHANGE, change_rows(report.changes))]
    return "\n\n".join(parts) + "\n"


def _results(report: CorpusReport) -> list[Standing]:
    return [each for each in report.standings if each.name not in (UNOPTIMIZED, BASELINE)]


def _table(title: str, head: Sequence[str], rows: Iterator[list[str]] | list[list[str]], words: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(head):
        table.add_column(column, justify="left" if number < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _more(count: int, what: str) -> Iterator[Text]:
    if count > _MOST:
        yield Text(f"{count - _MOST:,} more {what}; see --json or --html", style="dim")


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.1f}%"
