"""The comparison of optimizers on one model, end to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from graphopt.audit import feeds, inspection
from graphopt.audit.bench import Job, Variant
from graphopt.audit.contestants import BASELINE, UNOPTIMIZED, Contestant, contestants, usual_limits
from graphopt.audit.machine import Machine, usable_cores
from graphopt.audit.metric import Metric, evaluate
from graphopt.audit.record import Audit, Row
from graphopt.audit.settings import Manager, Settings
from graphopt.audit.statistics import Spread, speedups
from graphopt.audit.timing import Timing, measure
from graphopt.audit.verdicts import oracle_status
from graphopt.errors import ModelError, UsageError
from graphopt.rewrite import Level, Numerics, Target
from graphopt.system.extras import require
from graphopt.system.files import scratch
from graphopt.system.given import check_numbers, check_threads, several
from graphopt.system.processes import Limits
from graphopt.verify import SETS, ModelLike, compare
from graphopt.verify.interface import Shapes, sizes_from_shapes
from graphopt.verify.source import Source

LEVELS = ("basic", "extended", "all")
Progress = Callable[[str, float], None]
"""Called with the current activity and the finished fraction of the whole audit (0 to 1)."""

_SHARE_OPTIMIZING, _SHARE_CHECKING = 0.3, 0.2
_MEMORY_SHARE = 0.4
_FEW = 7
"""Rounds whose whole range is an interval of about 99 %."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How to measure.

    Attributes:
        threads: intra-op thread counts.
        rounds: interleaved rounds; as many as fit into the budget if None.
        budget: seconds of rounds for one thread count.
        starts: session starts of each row.
        limits: time and memory of one optimizer.
        verify: check every output with the oracle.
        seed: seed of the inputs.
        timed: run the results and measure them.
        isolate: run each optimizer in a separate process.
    """

    threads: tuple[int, ...] = (1,)
    rounds: int | None = None
    budget: float = 10.0
    starts: int = 7
    limits: Limits = field(default_factory=usual_limits)
    verify: bool = True
    seed: int = 0
    timed: bool = True
    isolate: bool = True

    def __post_init__(self) -> None:
        check_numbers(budget=self.budget)
        check_numbers(whole=True, seed=self.seed, starts=self.starts)
        check_numbers(1, whole=True, rounds=self.rounds)
        check_threads(*self.threads)


class AuditSettings(TypedDict, total=False):
    """The keyword arguments of `audit` besides the contestants; described there."""

    threads: Sequence[int]
    rounds: int | None
    budget: float
    starts: int
    shapes: Shapes | None
    dims: Mapping[str, int] | None
    data: str | Path | Mapping[str, Any] | None
    metric: str | Callable[..., float] | None
    numerics: str | Numerics
    target: str | Target | None
    verify: bool
    seed: int
    limits: Limits | None
    keep: str | Path | None
    timed: bool
    isolate: bool
    progress: Progress


def audit(
    source: ModelLike, managers: Mapping[str, Manager] | None = None, levels: Sequence[str | Level] = LEVELS,
    against: Sequence[str] | None = None, *, threads: Sequence[int] = (1,), rounds: int | None = None,
    budget: float = 10.0, starts: int = 7, shapes: Shapes | None = None, dims: Mapping[str, int] | None = None,
    data: str | Path | Mapping[str, Any] | None = None, metric: str | Callable[..., float] | None = None,
    numerics: str | Numerics = Numerics.ROUNDING, target: str | Target | None = None, verify: bool = True,
    seed: int = 0, limits: Limits | None = None, keep: str | Path | None = None, timed: bool = True,
    isolate: bool = True, progress: Progress = lambda what, part: None,
) -> Audit:  # fmt: skip
    """Run graphopt and other optimizers on a model and compare their results, their cost and their benefit.

    Args:
        source: the model: a path, bytes or a `ModelProto`.
        managers: graphopt's choices of passes by name; one for each of `levels` if None.
        levels: graphopt's levels.
        against: names of peers; all that are installed if None, none if empty.
        threads: intra-op thread counts to time at.
        rounds: interleaved rounds; as many as fit into `budget` if None.
        budget: seconds of rounds for one thread count.
        starts: how often each session is started.
        shapes: shapes of inputs by name.
        dims: sizes of symbolic dimensions by name; by default batch 1 and usual sizes of such inputs.
        data: arrays for the metric, an `.npz` file or a mapping; its inputs are also used for timing, and compared
            besides generated ones.
        metric: `module:function`, or a function of (outputs, data) that gives a number.
        numerics: the ceiling for graphopt's passes at `levels`, and the tolerance of comparisons.
        target: the machine that layout passes write for; the present one if None.
        verify: check every output with the oracle.
        seed: seed of the inputs.
        limits: time and memory limits of one optimizer.
        keep: a folder for the optimized files, which are deleted otherwise.
        timed: run the results and measure them; otherwise they are only counted, and compared by the oracle.
        isolate: run graphopt and the oracle in separate processes. False is for a process that may be lost: much faster
            for small models, and without memory figures.
        progress: callback that receives the progress.

    Raises:
        ModelError: the model cannot be read, or ONNX Runtime cannot run it.
        UsageError: an argument is wrong.
    """
    conditions = Conditions(
        several("threads", threads), rounds, budget, starts, limits or usual_limits(), verify, seed, timed, isolate
    )
    wanted = contestants(managers, several("levels", levels), against, Settings.at(numerics, target))
    given = Source(source, str(source) if isinstance(source, (str, Path)) else "model")
    with scratch() as temporary:
        # Only child processes write there, each in a folder of its own.
        folder = Path(keep).absolute() if keep is not None else temporary
        folder.mkdir(parents=True, exist_ok=True)
        try:
            run = _Run(given.plain_path(), given.label, wanted, conditions, folder=folder, progress=progress)
            run.choose_inputs(dict(shapes or {}), dict(dims or {}), Metric.of(data, metric))
            return run.all()
        finally:
            given.close()


class _Run:
    """A running audit."""

    def __init__(
        self,
        path: Path,
        label: str,
        wanted: list[Contestant],
        conditions: Conditions,
        *,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.path, self.wanted, self.conditions, self.folder = path, wanted, conditions, folder
        self.progress = progress
        self.began = time.perf_counter()
        self.proto = inspection.light_proto(path)
        self.files: dict[str, Path] = {}
        self.audit = Audit(Path(label).name, [], BASELINE, conditions.threads, {}, Machine.here())
        self.feed: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}
        self.metric: Metric | None = None

    def choose_inputs(self, shapes: dict[str, Any], dims: dict[str, int], metric: Metric | None) -> None:
        """Choose the inputs."""
        self.metric = metric
        fixed = {**sizes_from_shapes(self.proto, shapes), **dims}
        if metric is not None:
            self.feed = metric.first_batch(self.proto)
        else:
            self.feed = feeds.timing_feed(self.path, self.proto, fixed, self.conditions.seed)
        self.audit.inputs = feeds.shapes_of(self.feed)
        known = feeds.symbols(self.proto)
        if unknown := sorted(dims.keys() - known):
            self.audit.notes.append(f"no input has a dimension {', '.join(map(repr, unknown))}: that size is not used")
        self.audit.metric = metric.name if metric is not None else ""
        self.sizes = {name: size for name, size in fixed.items() if name in known}

    def all(self) -> Audit:
        """Optimize, inspect, verify, time."""
        self._optimize()
        if self.conditions.timed:
            self._time()
            self._remarks()
        self.audit.seconds = time.perf_counter() - self.began
        self.audit.files = dict(self.files)
        return self.audit

    def _optimize(self) -> None:
        for number, contestant in enumerate(self.wanted):
            part = number / len(self.wanted)
            self.progress(f"{contestant.name}: optimizing", part * _SHARE_OPTIMIZING)
            self.audit.rows.append(self._produce(contestant))
        for number, row in enumerate(self.audit.rows):
            part = _SHARE_OPTIMIZING + number / len(self.wanted) * _SHARE_CHECKING
            self.progress(f"{row.name}: checking", part)
            self._inspect(row)

    def _produce(self, contestant: Contestant) -> Row:
        row = Row(contestant.name, contestant.tool, contestant.runtime, contestant.version)
        if contestant.tool == "raw":
            self.files[row.name] = self.path
            return row
        target = self.folder / f"{contestant.name.replace(' ', '_')}.onnx"
        if target.exists() and target.samefile(self.path):
            raise UsageError(f"keep: {target} is the model itself; expected another folder")
        made = contestant.produce(self.path, target, self.conditions.limits, isolate=self.conditions.isolate)
        row.status, row.message, row.passes, row.removed = made.status, made.message, made.passes, made.removed
        row.seconds, row.peak_bytes = made.seconds, made.peak_bytes
        if row.status == "ok" and not target.is_file():
            row.status, row.message = "failed", "wrote no file"
        if row.status == "ok":
            self.files[row.name] = target
        return row

    def _inspect(self, row: Row) -> None:
        path = self.files.get(row.name)
        if path is None:
            return
        try:
            after = self.proto if path == self.path else inspection.light_proto(path)
        except Exception as error:  # a peer's file may be arbitrary
            row.status, row.message = "invalid", f"cannot be read: {error}"
            del self.files[row.name]
            return
        row.contents = inspection.contents(path, after)
        objection = inspection.check(path)
        row.valid = not objection
        row.message = row.message or objection
        if path == self.path:
            return
        row.losses = inspection.losses(self.proto, after)
        if self.conditions.verify:
            self._verify(row, path)

    def _verify(self, row: Row, path: Path) -> None:
        own = self.feed if self.metric is not None else None
        report = compare(
            self.path, path, numerics=self._numerics(row.name), seed=self.conditions.seed, dims=self.sizes,
            timeout=self.conditions.limits.seconds, isolate=self.conditions.isolate, inputs=own,
            sets=None if own is None else SETS,
        )  # fmt: skip
        row.verification = oracle_status(report)
        if not report.ok:
            # The oracle's finding comes first, since the status refers to it; other objections follow.
            row.message = "; ".join(filter(None, [next(iter(report.summary().splitlines()[1:]), ""), row.message]))

    def _numerics(self, name: str) -> Numerics:
        """The tolerance for a row: that of its passes, but at least the error of the runtime's kernels."""
        settings = next(each.settings for each in self.wanted if each.name == name)
        return Numerics.ROUNDING if settings is None else max(settings.numerics, Numerics.ROUNDING)

    def _time(self) -> None:
        variants = [
            Variant(row.name, str(self.files[row.name]), row.runtime) for row in self.audit if row.name in self.files
        ]
        conditions = self.conditions
        job = Job(
            variants, BASELINE, self.feed, conditions.threads, conditions.budget, conditions.rounds, conditions.starts,
            together=self._fits(),
        )  # fmt: skip
        behind = _SHARE_OPTIMIZING + _SHARE_CHECKING
        timing = measure(job, lambda what, part: self.progress(what, behind + part * (1.0 - behind)))
        if UNOPTIMIZED in timing.failures:
            raise ModelError(f"{self.path}: onnxruntime cannot run it: {timing.failures[UNOPTIMIZED]}")
        for row in self.audit:
            _fill(row, timing)
        if self.metric is not None:
            for row in self.audit:
                if row.name in self.files and row.status == "ok":
                    variant = Variant(row.name, str(self.files[row.name]), row.runtime)
                    row.metric = evaluate(self.metric, variant)

    def _fits(self) -> bool:
        """Whether sessions of all files fit into memory at once."""
        psutil = require("psutil")

        total = sum(row.contents.file_bytes for row in self.audit if row.contents is not None)
        return bool(total * 2 < psutil.virtual_memory().available * _MEMORY_SHARE)

    def _remarks(self) -> None:
        notes = self.audit.notes
        load = self.audit.machine.load
        if load is not None and load > 0.3 * usable_cores():
            notes.append(f"the machine was busy (load {load:.1f} on {usable_cores()} cores) when the audit began")
        rounds = min((spread.rounds for row in self.audit for spread in row.latency.values()), default=_FEW)
        if rounds < _FEW:
            whole = f"the intervals of {rounds} rounds are their whole range, which is below 99 %"
            notes.append(
                whole if rounds > 1 else "one round gives no confidence interval, so that all results are ties"
            )
        if max(self.conditions.threads) > usable_cores():
            notes.append(f"more threads than the {usable_cores()} cores of this machine")
        if not self._fits():
            notes.append("sessions did not fit into memory together and were opened one by one")


def _fill(row: Row, timing: Timing) -> None:
    if row.name in timing.failures:
        row.status = "crashed" if row.name in timing.crashed else "failed"
        row.message = timing.failures[row.name]
        return
    if row.name in timing.errors:
        row.max_abs, row.max_rel = timing.errors[row.name]
    for threads, rounds in timing.latency.items():
        if row.name in rounds and BASELINE in rounds:
            row.latency[threads] = Spread.of(rounds[row.name])
            row.speedup[threads] = speedups(rounds[BASELINE], rounds[row.name])
    if row.name in timing.start and BASELINE in timing.start:
        row.start = Spread.of(timing.start[row.name])
        row.start_speedup = speedups(timing.start[BASELINE], timing.start[row.name])
