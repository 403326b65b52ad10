"""Comparison in a process of its own, so that a crash or a hang of a runtime becomes a line in the report."""

from __future__ import annotations

from typing import Any

from graphopt.system.child import tell
from graphopt.system.processes import ChildError, Limits, call
from graphopt.verify.interface import differences, interface_of
from graphopt.verify.oracle import Request, only_taken, run_comparison
from graphopt.verify.report import Report
from graphopt.verify.source import ModelLike, Source


def run_isolated(original: ModelLike, result: ModelLike, request: Request, timeout: float | None) -> Report:
    """Compare in a child process, which is stopped after `timeout` seconds."""
    stage: dict[str, Any] = {"stage": "starting"}
    before, after = Source(original, "original"), Source(result, "result")
    try:
        request = only_taken(before, request)
        job = (str(before.path()), str(after.path()), request)
        report: Report = call(_compare, *job, limits=Limits(timeout, None), heard=stage.update)
        return report
    except ChildError as error:
        detail = f"{error} while {stage['stage']}"
        blamed = "result" in stage["stage"] and error.status == "crashed"
    finally:
        before.close()
        after.close()
    changes = differences(interface_of(before.proto), interface_of(after.proto))
    return Report(
        "mismatch" if blamed else "inconclusive", request.numerics, request.seed, interface=changes, detail=detail
    )


def _compare(original: str, result: str, request: Request) -> Report:
    return run_comparison(original, result, request, lambda text: tell(stage=text))
