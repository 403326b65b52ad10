"""The measuring process: all variants of a model are sessions of one process, run in interleaved rounds.

A noisy minute affects all variants alike, the order changes from round to round, and each session runs once untimed
before its timed burst, because the sessions before it evicted its weights from the cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.system.child import tell
from graphopt.system.sessions import ALONE, open_session, weights_beside

_BURST_MS = 8.0
_LONGEST_BURST = 50
_TRIES = 5
_TRYING = 0.2
"""Seconds after which no further trial is made to estimate the time of a run: for slow models one run is a burst."""
_SMALLEST = 1e-30


@dataclass(frozen=True, slots=True)
class Variant:
    """A model file and how to run it.

    Attributes:
        name: its name in reports.
        path: the file.
        runtime: ONNX Runtime's level: `none`, `basic`, `extended`, `layout` or `all`.
        config: session configuration entries.
    """

    name: str
    path: str
    runtime: str
    config: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Job:
    """A measurement to make.

    Attributes:
        variants: what to run; the first one's outputs are the reference for errors.
        baseline: name of the variant that speed-ups refer to.
        feed: the inputs.
        threads: intra-op thread counts.
        budget: seconds for the rounds of one thread count.
        rounds: rounds of one thread count; by the budget if None.
        starts: how often each session is started; 0 for no such measurement.
        together: whether all sessions fit into memory at once.
    """

    variants: list[Variant]
    baseline: str
    feed: dict[str, Any]
    threads: tuple[int, ...] = (1,)
    budget: float = 10.0
    rounds: int | None = None
    starts: int = 7
    together: bool = True


def open_variant(variant: Variant, threads: int, *, save_as: str = "", **settings: Any) -> Any:
    """A session of a variant; uses of sessions alternate."""
    config = {**ALONE, **variant.config, **(weights_beside(f"{Path(save_as).name}.data") if save_as else {})}
    return open_session(
        variant.path, level=variant.runtime, threads=threads, config=config, save_as=save_as, **settings
    )


class Bench:
    """Measures the variants of one job; skips those that do not load or run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.variants: list[Variant] = []

    def run(self) -> None:
        """Check all variants, then time them."""
        self._check()
        names = [variant.name for variant in self.variants]
        if self.job.baseline not in names:
            return
        for threads in self.job.threads:
            tell(at="", stage="latency", threads=threads)
            times = self._rounds(threads)
            tell(latency=times, threads=threads)
        if self.job.starts:
            tell(at="", stage="start")
            tell(start=self._starts())

    def _check(self) -> None:
        reference: list[Any] | None = None
        for variant in self.job.variants:
            tell(at=variant.name, stage="check")
            try:
                outputs = open_variant(variant, 1).run(None, self.job.feed)
            except Exception as error:  # a native library's exceptions share no base class
                tell(failed=variant.name, message=_line(error))
                continue
            self.variants.append(variant)
            if reference is None:
                reference = outputs
            absolute, relative = largest_error(reference, outputs)
            tell(error=variant.name, max_abs=absolute, max_rel=relative)

    def _rounds(self, threads: int) -> dict[str, list[float]]:
        opened = {v.name: open_variant(v, threads) for v in self.variants} if self.job.together else {}
        bursts = {}
        for variant in self.variants:
            session = opened.get(variant.name) or open_variant(variant, threads)
            bursts[variant.name] = self._burst(session)
        times: dict[str, list[float]] = {variant.name: [] for variant in self.variants}
        order = list(self.variants)
        shuffle = random.Random(0)
        limit = self.job.rounds or 101
        fewest = self.job.rounds or 7
        stop = time.perf_counter() + self.job.budget
        for number in range(limit):
            if number >= fewest and time.perf_counter() > stop:
                break
            shuffle.shuffle(order)
            for variant in order:
                session = opened.get(variant.name) or open_variant(variant, threads)
                times[variant.name].append(self._time(session, bursts[variant.name]))
            tell(round=number + 1, left=round(max(0.0, stop - time.perf_counter()), 2))
        return times

    def _burst(self, session: Any) -> int:
        """The number of runs in a burst of a session, by the fastest of some trials.

        An interrupted trial looks long. With a single trial one of two equal models could get shorter bursts, which are
        interrupted less often, and seem several times as fast.
        """
        fastest, stop = float("inf"), time.perf_counter() + _TRYING
        for _ in range(_TRIES):
            fastest = min(fastest, self._time(session, 1))
            if time.perf_counter() > stop:
                break
        return max(1, min(_LONGEST_BURST, int(_BURST_MS / fastest)))

    def _time(self, session: Any, runs: int) -> float:
        """Milliseconds of one run, the mean of a burst after an untimed run."""
        feed = self.job.feed
        session.run(None, feed)
        start = time.perf_counter()
        for _ in range(runs):
            session.run(None, feed)
        return (time.perf_counter() - start) / runs * 1e3

    def _starts(self) -> dict[str, list[float]]:
        """Milliseconds until a session is ready, with one thread."""
        times: dict[str, list[float]] = {variant.name: [] for variant in self.variants}
        order = list(self.variants)
        shuffle = random.Random(1)
        for number in range(self.job.starts):
            shuffle.shuffle(order)
            for variant in order:
                begin = time.perf_counter()
                session = open_variant(variant, 1)
                times[variant.name].append((time.perf_counter() - begin) * 1e3)
                del session
            tell(round=number + 1, left=0.0)
        return times


def largest_error(expected: Sequence[Any], actual: Sequence[Any]) -> tuple[float, float]:
    """Largest absolute error over all outputs, and largest error relative to the range of its output.

    Infinite if a shape, a length, a NaN or an infinity differs.
    """
    from graphopt.verify.structure import leaves

    absolute = relative = 0.0
    for one, two in zip(expected, actual, strict=True):
        parts = list(leaves(one)), list(leaves(two))
        if len(parts[0]) != len(parts[1]):
            return float("inf"), float("inf")
        for (_, a), (_, b) in zip(*parts, strict=True):
            apart, of_range = _error(np.asarray(a), np.asarray(b))
            absolute, relative = max(absolute, apart), max(relative, of_range)
    return absolute, relative


def _error(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[float, float]:
    infinite = float("inf")
    if a.shape != b.shape or a.dtype != b.dtype:
        return infinite, infinite
    if a.dtype.kind not in "fiub":
        return (0.0, 0.0) if bool(np.all(a == b)) else (infinite, infinite)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(wide_a)
    if not np.array_equal(finite, np.isfinite(wide_b)):
        return infinite, infinite
    if not np.array_equal(wide_a[~finite], wide_b[~finite], equal_nan=True):
        return infinite, infinite
    apart = float(np.abs(wide_a[finite] - wide_b[finite]).max(initial=0.0))
    if not apart and a.dtype.kind in "iu":  # large neighbouring integers round to the same float
        from graphopt.verify.numerics import largest_distance

        apart = largest_distance(a, b) if a.size else 0.0
    scale = float(np.abs(wide_a[finite]).max(initial=0.0))
    return apart, apart / max(scale, _SMALLEST) if apart else 0.0


def _line(error: BaseException) -> str:
    from graphopt.verify.runners import one_line

    return one_line(error)


def run(job: Job) -> None:
    """Do a job, and send the results."""
    Bench(job).run()
