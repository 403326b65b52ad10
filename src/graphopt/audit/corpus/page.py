"""The report of a corpus as one HTML file: tables that sort and filter, down to each model's audit."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

from graphopt.audit.contestants import UNOPTIMIZED
from graphopt.audit.corpus import view
from graphopt.audit.corpus.record import Record
from graphopt.audit.corpus.report import CorpusReport, Standing
from graphopt.audit.html.rendering import render, script_data, source

MOST_MODELS = 20_000
"""The most models on a page, of about 1 kB each; those with faults come first."""


def corpus_html(report: CorpusReport, records: Iterable[Record]) -> str:
    """The page of a report.

    Args:
        report: the report.
        records: the records that it covers.
    """
    total = report.statuses.total()
    shown = heapq.nsmallest(MOST_MODELS, map(_model, records), key=_rank)
    data = {
        "models": shown,
        "standings": [_figures(each, report) for each in report.standings],
        "kinds": list(report.kinds),
        "operatorHead": ["operator", *view.operator_head(report)],
        "operators": list(view.operator_rows(report)),
        "passes": list(view.firing_rows(report)),
        "releaseHead": view.release_head(report),
        "releases": list(view.release_rows(report)),
        "changes": list(view.change_rows(report.changes)) if report.changes is not None else [],
    }
    return render(
        "corpus.html.j2", script=source("corpus.js"), data=script_data(data), heading=view.heading(report),
        left=total - len(shown), release=report.campaign.release, versions=report.campaign.versions,
        changes=view.changes_heading(report.changes) if report.changes is not None else "",
        releases=bool(report.releases),
    )  # fmt: skip


def _figures(standing: Standing, report: CorpusReport) -> dict[str, Any]:
    """A contestant's figures; the page itself finds the models behind each."""
    speeds = [standing.speed.get(kind) for kind in report.kinds]
    return {
        "name": standing.name,
        "counts": [standing.right, len(standing.wrong), len(standing.failed)],
        "nodes": standing.nodes.value,
        "size": standing.size.value,
        "seconds": standing.seconds,
        "speeds": [
            None if each is None else [each.ratio.value, len(each.faster), len(each.tie), len(each.slower)]
            for each in speeds
        ],
    }


def _model(record: Record) -> dict[str, Any]:
    audit = record.audit
    return {
        "name": record.name,
        "digest": record.model[:12],
        "status": record.status,
        "how": ": ".join(filter(None, (record.at if audit is None else "", record.how))),
        "kind": record.kind,
        "seconds": record.seconds,
        "rows": [] if audit is None else [_row(row, str(audit["threads"][0])) for row in audit["rows"]],
    }


def _row(row: dict[str, Any], threads: str) -> dict[str, Any]:
    contents, speed = row["contents"], row["speedup"].get(threads)
    wrong = row["status"] == "ok" and row["verification"] == "mismatch"
    return {
        "name": row["name"],
        "state": "wrong" if wrong else "right" if row["status"] == "ok" else "failed",
        "says": " ".join(filter(None, ("" if row["status"] == "ok" else row["status"], row["verification"]))),
        "message": row["message"],
        "nodes": contents["nodes"] if contents else None,
        "bytes": contents["file_bytes"] if contents else None,
        "ops": contents["ops"] if contents and row["name"] == UNOPTIMIZED else {},
        "seconds": row["seconds"],
        "speed": None if speed is None else [speed["median"], speed["low"], speed["high"], speed["verdict"]],
        "passes": row["passes"],
    }


def _rank(model: dict[str, Any]) -> tuple[int, str]:
    states = {row["state"] for row in model["rows"]}
    fault = 0 if "wrong" in states else 1 if model["status"] != "done" else 2 if "failed" in states else 3
    return fault, model["name"]
