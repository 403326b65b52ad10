"""Audits of many models as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from graphopt.audit.columns import ABSENT, duration
from graphopt.audit.contestants import BASELINE
from graphopt.audit.corpus import Corpus, Standing
from graphopt.audit.markdown import table as markdown_table
from graphopt.printable import markdown
from graphopt.terminal import Lines

_HEAD = ("", "right", "failed", "wrong", "speed-up", "faster", "tie", "slower", "nodes left", "optimize")


def render_corpus(corpus: Corpus, width: int) -> Iterator[Any]:
    """Standings, then each model, then what went wrong."""
    yield Text(f"{len(corpus.audits)} models, {corpus.reused} of them from the store", style="bold")
    standings = corpus.standings()
    table = _table("All models (speed-up: geometric mean against the baseline)", _HEAD)
    for standing in standings:
        style = "red" if standing.wrong else "bold" if standing.name.startswith("graphopt") else ""
        table.add_row(*cells(standing), style=style)
    yield table
    if corpus.audits:
        yield _models(corpus, width)
    for standing in standings:
        for model in standing.wrong:
            yield Text(f"{standing.name}: {model}: wrong results", style="red")
        for model, reason in standing.failures.items():
            yield Text(f"{standing.name}: {model}: {reason}", style="yellow")
    for model, reason in corpus.failures.items():
        yield Text(f"{model}: {reason}", style="red")


def cells(standing: Standing) -> list[str]:
    """A standing as text."""
    counts = [
        str(standing.verdicts.get(verdict, 0)) if standing.verdicts else ABSENT
        for verdict in ("faster", "tie", "slower")
    ]
    return [
        standing.name, str(standing.models), str(len(standing.failures)), str(len(standing.wrong)),
        ABSENT if standing.speedup is None else f"{standing.speedup:.2f}x", *counts,
        ABSENT if standing.nodes is None else f"{100 * standing.nodes:.0f}%",
        duration(standing.seconds) if standing.seconds else ABSENT,
    ]  # fmt: skip


def _table(title: str, head: tuple[str | Lines, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in head:
        table.add_column(column, justify="right" if column else "left", overflow="fold", no_wrap=not column)
    return table


def _models(corpus: Corpus, width: int) -> Table:
    names = [s.name for s in corpus.standings() if s.name != BASELINE]
    table = _table("Speed-up by model", ("", *(Lines(name.replace(" ", "\n")) for name in names)))
    for row in model_rows(corpus, names):
        table.add_row(*row)
    return table


def model_rows(corpus: Corpus, names: list[str]) -> Iterator[list[str]]:
    """For each model the speed-up of each contestant; ties in brackets."""
    for model, audit in corpus.audits.items():
        rows = {row["name"]: row for row in audit["rows"]}
        yield [model, *(_speedup(rows.get(name), str(audit["threads"][0])) for name in names)]


def _speedup(row: dict[str, Any] | None, threads: str) -> str:
    if row is None:
        return ABSENT
    if row["status"] != "ok":
        return str(row["status"])
    if row["verification"] == "mismatch":
        return "wrong"
    found = row["speedup"].get(threads)
    if found is None:
        return ABSENT
    return f"({found['median']:.2f})" if found["verdict"] == "tie" else f"{found['median']:.2f}"


def corpus_to_markdown(corpus: Corpus) -> str:
    """The same as Markdown."""
    names = [s.name for s in corpus.standings() if s.name != BASELINE]
    parts = [
        f"## {len(corpus.audits)} models",
        markdown_table(_HEAD, (cells(standing) for standing in corpus.standings())),
        "### Speed-up by model (ties in brackets)",
        markdown_table(("", *names), model_rows(corpus, names)),
    ]
    remarks = [f"- {markdown(model)}: {markdown(reason)}" for model, reason in corpus.failures.items()]
    return "\n\n".join([*parts, "\n".join(remarks)] if remarks else parts) + "\n"
