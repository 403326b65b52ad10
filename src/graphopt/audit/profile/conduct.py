"""A whole profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphopt.audit import feeds
from graphopt.audit.bench import Variant
from graphopt.audit.inspection import light_proto
from graphopt.audit.machine import Machine, usable_cores
from graphopt.audit.profile.alone import time_alone
from graphopt.audit.profile.contention import ContentionJob, better_settings, profile_contention
from graphopt.audit.profile.denormals import profile_denormals
from graphopt.audit.profile.findings import findings
from graphopt.audit.profile.levels import LEVELS, profile_levels
from graphopt.audit.profile.peak import measure_peak
from graphopt.audit.profile.record import Profile
from graphopt.audit.settings import Settings
from graphopt.audit.timing import Progress
from graphopt.errors import ModelError, UsageError
from graphopt.rewrite import Level
from graphopt.system.files import scratch
from graphopt.system.given import check_numbers, check_threads, several
from graphopt.system.processes import ChildError, call
from graphopt.verify import ModelLike
from graphopt.verify.interface import Shapes, sizes_from_shapes, taken
from graphopt.verify.runners import CannotLoadError, open_runner
from graphopt.verify.source import Source

PARTS = ("levels", "alone", "denormals", "threads")
"""The parts of a profile."""


def profile(
    source: ModelLike, *, parts: Sequence[str] = PARTS, threads: int = 1, thread_counts: Sequence[int] | None = None,
    graphopt: bool = True, top: int = 12, rounds: int = 15, budget: float = 6.0, shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None, data: Mapping[str, Any] | None = None, seed: int = 0,
    progress: Progress = lambda what, part: None,
) -> Profile:  # fmt: skip
    """Determine where a model's time goes.

    Args:
        source: the model.
        parts: some of `PARTS`.
        threads: intra-op threads of everything but the thread table.
        thread_counts: thread counts of that table; 1, all cores and twice as many if None.
        graphopt: also profile graphopt's own `all` output beside ONNX Runtime's levels.
        top: the number of operators to time alone.
        rounds: the most interleaved rounds under the profiler.
        budget: seconds of these for each level, and of the rounds of each further measurement.
        shapes: shapes of inputs by name.
        dims: sizes of symbolic dimensions by name.
        data: the user's own inputs.
        seed: seed of generated inputs.
        progress: callback that receives the progress.

    Raises:
        ModelError: the model cannot be read or run.
        UsageError: an argument is wrong.
    """
    parts = several("parts", parts)
    check_threads(threads, *several("threads", thread_counts or ()))
    check_numbers(2, whole=True, rounds=rounds)
    check_numbers(whole=True, top=top, seed=seed)
    check_numbers(budget=budget)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise UsageError(f"unknown part {unknown[0]!r}; expected some of {', '.join(PARTS)}")
    given = Source(source, str(source) if isinstance(source, (str, Path)) else "model")
    try:
        path = given.plain_path()
        proto = light_proto(path)
        fixed = {**sizes_from_shapes(proto, dict(shapes or {})), **dict(dims or {})}
        feed = taken(proto, data) if data is not None else feeds.timing_feed(path, proto, fixed, seed)
        found = Profile(Path(given.label).name, feeds.shapes_of(feed), Machine.here(), threads)
        with scratch() as folder:
            run = _Run(found, path, feed, Path(folder), progress, rounds=rounds, budget=budget)
            if graphopt:
                run.add_graphopt()
            try:
                run.measure(parts, top, tuple(thread_counts or _counts()))
            except ChildError:
                _check_loads(given)
                raise
        found.findings = findings(found)
        return found
    finally:
        given.close()


def _check_loads(given: Source) -> None:
    """Reject a model that the runtime does not load, instead of reporting how its process ended.

    Raises:
        ModelError: with the runtime's message.
    """
    try:
        open_runner(given, ("onnxruntime",))
    except CannotLoadError as error:
        raise ModelError(f"{given.label}: {error}") from None


def _counts() -> list[int]:
    cores = usable_cores()
    return sorted({1, max(1, cores // 2), cores, 2 * cores})


class _Run:
    """A profile in progress."""

    def __init__(
        self, found: Profile, path: Path, feed: dict[str, Any], folder: Path, progress: Progress, *, rounds: int,
        budget: float,
    ) -> None:  # fmt: skip
        self.found, self.path, self.feed, self.folder, self.progress = found, path, feed, folder, progress
        self.rounds, self.budget = rounds, budget
        self.variants = [Variant(level, str(path), level) for level in LEVELS]
        self.places: dict[str, Path] = {}
        self.cured: Path | None = None

    def add_graphopt(self) -> None:
        """Add graphopt's complete output as one more level."""
        target = self.folder / "graphopt_optimized.onnx"
        Settings(Level.ALL).run(self.path)[0].save(target)
        self.cured = self.folder / "graphopt_basic.onnx"
        Settings(Level.BASIC).run(self.path)[0].save(self.cured)
        self.variants.insert(0, Variant("graphopt", str(target), "none"))

    def measure(self, parts: Sequence[str], top: int, counts: tuple[int, ...]) -> None:
        """Measure the requested parts."""
        found = self.found
        if "levels" in parts or "alone" in parts or "denormals" in parts:
            self.places = profile_levels(
                found, self.path, self.variants, self.feed, folder=self.folder, progress=self.progress,
                rounds=self.rounds, budget=self.budget,
            )  # fmt: skip
        if "alone" in parts:
            self._alone(top)
        if "denormals" in parts:
            found.denormals = profile_denormals(
                self.path, self.places.get("all"), self.feed, self.progress, threads=found.threads, budget=self.budget,
                cured=self.cured,
            )  # fmt: skip
        if "threads" in parts:
            self.progress("timing thread counts", 0.0)
            variant = Variant("all", str(self.path), "all")
            found.contention = profile_contention(ContentionJob(variant, self.feed, counts, self.budget / 2))
            found.findings += better_settings(found.contention)
        if "levels" not in parts:
            found.blocks = []  # they were only needed to find the slowest operators

    def _alone(self, top: int) -> None:
        """The slowest operators of the graph that ONNX Runtime runs by default."""
        self.progress("measuring the machine's limits", 0.0)
        found = self.found
        found.peak = call(measure_peak, found.threads)
        assert found.peak is not None
        place = self.places.get("all")
        if place is None:
            return
        times: dict[str, float] = {}
        for block in found.blocks:
            part = block.parts.get("all")
            if part is not None:
                times.update(zip(part.names, part.times, strict=True))
        slowest = sorted(times, key=lambda name: -times[name])[:top]
        for number, name in enumerate(slowest):
            self.progress(f"timing {name} alone", number / len(slowest))
            found.lone += time_alone("all", place, {name: times[name]}, feed=self.feed, peak=found.peak)
