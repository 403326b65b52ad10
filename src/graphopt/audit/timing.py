"""Measures in a separate process: a crashing variant only loses its own row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from graphopt.audit import bench
from graphopt.audit.bench import Job
from graphopt.system.processes import ChildError, call

Progress = Callable[[str, float], None]
"""Called with the current activity and its progress (0 to 1)."""


@dataclass(slots=True)
class Timing:
    """The results of a job.

    Attributes:
        latency: for each thread count, milliseconds of every round by variant.
        start: milliseconds of every session start by variant.
        errors: largest absolute and relative error by variant.
        failures: why a variant could not be run.
        crashed: variants that crashed their process.
    """

    latency: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    start: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    crashed: set[str] = field(default_factory=set)


def measure(job: Job, progress: Progress = lambda what, part: None) -> Timing:
    """Run a job; if the process dies at a variant, run it again without that variant."""
    failures: dict[str, str] = {}
    crashed: set[str] = set()
    while True:
        timing, culprit, how = _attempt(job, progress)
        timing.failures.update(failures)
        timing.crashed |= crashed
        if how is None:
            return timing
        if culprit is None or culprit == job.variants[0].name:
            timing.failures.setdefault(culprit or job.baseline, how)
            return timing
        failures[culprit] = how
        crashed.add(culprit)
        job = replace(job, variants=[variant for variant in job.variants if variant.name != culprit])


def _attempt(job: Job, progress: Progress) -> tuple[Timing, str | None, str | None]:
    """Run one process: its results, and if it died the variant at which it did and how it ended."""
    timing = Timing()
    at: str | None = None
    stage = ""

    def heard(message: dict[str, Any]) -> None:
        nonlocal at, stage
        at = message.get("at", at) or None
        stage = message.get("stage", stage)
        _note(timing, message)
        progress(_label(stage, at, message), _part(message, job, job.rounds or 0))

    try:
        call(bench.run, job, heard=heard)
    except ChildError as error:
        return timing, at, str(error)
    return timing, None, None


def _note(timing: Timing, message: dict[str, Any]) -> None:
    if "failed" in message:
        timing.failures[message["failed"]] = message["message"]
    elif "error" in message:
        timing.errors[message["error"]] = (message["max_abs"], message["max_rel"])
    elif "latency" in message:
        timing.latency[message["threads"]] = message["latency"]
    elif "start" in message:
        timing.start = message["start"]


def _label(stage: str, at: str | None, message: dict[str, Any]) -> str:
    number = message.get("round")
    what = {"check": "checking", "latency": "timing runs", "start": "timing session starts"}.get(stage, "measuring")
    if number is not None:
        return f"{what}, round {number}"
    return f"{what} {at}" if at else what


def _part(message: dict[str, Any], job: Job, rounds: int) -> float:
    if "left" in message and rounds == 0:
        return 1.0 - min(1.0, float(message["left"]) / job.budget) if job.budget else 1.0
    if "round" in message and rounds:
        return min(1.0, int(message["round"]) / rounds)
    return 0.0
