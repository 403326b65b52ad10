"""Measuring in a process of its own: a variant that crashes costs its own row and nothing else."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from graphopt.audit.bench import MARK, Job
from graphopt.audit.process import child_environment, ending

Progress = Callable[[str, float], None]
"""Told what is being done, and how far that is (0 to 1)."""


@dataclass(slots=True)
class Timing:
    """What a job gave.

    Attributes:
        latency: for each thread count, milliseconds of every round by variant.
        start: milliseconds of every session start by variant.
        errors: largest absolute and relative error by variant.
        failures: why a variant could not be run.
        crashed: variants that took their process with them.
    """

    latency: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    start: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    crashed: set[str] = field(default_factory=set)


def measure(job: Job, progress: Progress = lambda what, part: None) -> Timing:
    """Run a job; when the process dies at a variant, run it again without that one."""
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
    """One process: what it gave, and when it died the variant it was at and how it ended."""
    timing = Timing()
    at: str | None = None
    done = False
    stage = ""
    with tempfile.TemporaryDirectory(prefix="graphopt-audit-") as folder:
        file, log = Path(folder) / "job", Path(folder) / "log"
        file.write_bytes(pickle.dumps(job))
        with log.open("wb") as errors, _start(file, errors) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if not line.startswith(MARK):
                        continue
                    message = json.loads(line[1:])
                    at = message.get("at", at) or None
                    stage = message.get("stage", stage)
                    done = done or "done" in message
                    _note(timing, message)
                    progress(_label(stage, at, message), _part(message, job, job.rounds or 0))
            except BaseException:
                process.kill()
                raise
        text = log.read_text(errors="replace")
    return (timing, None, None) if done else (timing, at, ending(process.returncode, text))


def _start(job: Path, errors: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "graphopt.audit.bench", str(job)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace",
        env=child_environment(),
    )  # fmt: skip


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
