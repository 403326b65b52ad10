"""A model at several thread counts, alone and beside a second session of the same kind."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from graphopt.audit.bench import Variant, open_variant
from graphopt.audit.profile.record import ThreadRow
from graphopt.audit.statistics import Spread
from graphopt.printable import counted
from graphopt.system.processes import call

_FEWEST = 7


@dataclass(frozen=True, slots=True)
class ContentionJob:
    """The timing to do.

    Attributes:
        variant: the model and its level.
        feed: inputs.
        threads: thread counts.
        seconds: seconds for each measurement.
    """

    variant: Variant
    feed: dict[str, Any]
    threads: tuple[int, ...]
    seconds: float


def profile_contention(job: ContentionJob) -> list[ThreadRow]:
    """Time the model at each thread count, in a separate process."""
    rows: list[ThreadRow] = call(measure_contention, job)
    return rows


def measure_contention(job: ContentionJob) -> list[ThreadRow]:
    """The measurement; alone and beside alternate, so that a noisy minute affects both."""
    rows = []
    for threads in job.threads:
        # Spinning thread pools are the default, and what slows down concurrent sessions.
        sessions = [
            open_variant(Variant(job.variant.name, job.variant.path, job.variant.runtime, _SPIN), threads) for _ in "ab"
        ]
        for session in sessions:
            session.run(None, job.feed)
        alone: list[float] = []
        beside: list[float] = []
        others = 0
        time_beside = 0.0
        for _ in range(3):
            alone += _loop(sessions[0], job.feed, job.seconds / 3)
            began = time.perf_counter()
            own, count = _beside(sessions, job.feed, job.seconds / 3)
            time_beside += time.perf_counter() - began
            beside += own
            others += count
        rows.append(
            ThreadRow(
                threads, Spread.of(alone), Spread.of(beside), (len(beside) + others) / time_beside,
                1e3 / Spread.of(alone).median,
            )
        )  # fmt: skip
    return rows


_SPIN = {"session.force_spinning_stop": "0"}


def _loop(session: Any, feed: dict[str, Any], seconds: float) -> list[float]:
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < _FEWEST or time.perf_counter() < stop:
        begin = time.perf_counter()
        session.run(None, feed)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def _beside(sessions: list[Any], feed: dict[str, Any], seconds: float) -> tuple[list[float], int]:
    """Times of the first session while the second runs without pause, and the number of runs of the second."""
    done = threading.Event()
    count = 0

    def work() -> None:
        nonlocal count
        while not done.is_set():
            sessions[1].run(None, feed)
            count += 1

    other = threading.Thread(target=work)
    other.start()
    try:
        times = _loop(sessions[0], feed, seconds)
    finally:
        done.set()
        other.join()
    return times, count


def _threads(count: int) -> str:
    return counted(count, "thread")


def better_settings(rows: list[ThreadRow]) -> list[str]:
    """The conclusions from the table, in words."""
    if not rows:
        return []
    best = min(rows, key=lambda row: row.alone.median)
    found = [f"alone, {_threads(best.threads)} is fastest: {best.alone.median:.3g} ms"]
    both = [row for row in rows if row.together is not None and row.beside is not None]
    if both:
        most = max(both, key=lambda row: row.together or 0.0)
        found.append(
            f"two sessions side by side get the most done with {_threads(most.threads)} each: {most.together:.3g} runs "
            f"a second together, {most.beside.median if most.beside else 0:.3g} ms a run"
        )
        worst = max(both, key=lambda row: (row.beside.median / row.alone.median) if row.beside else 0.0)
        if worst.beside is not None and worst.beside.median > 1.2 * worst.alone.median:
            slower = worst.beside.median / worst.alone.median
            found.append(
                f"with {_threads(worst.threads)} each, a second session makes a run take {slower:.2f} times as long"
            )
    return found
