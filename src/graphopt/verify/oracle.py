"""The comparison: runs the original on suitable inputs, the result on the same, and compares their outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir import BOUNDED_KEY, REMOVED_KEY, ZEROED_KEY
from graphopt.system.machine import runs_here
from graphopt.verify import numerics as levels
from graphopt.verify.determinism import random_outputs
from graphopt.verify.inputs import BOLD, FLAGS, SETS, CannotGenerateError, Feed, Generator, InputPlan
from graphopt.verify.interface import Shapes, differences, interface_of, sizes_from_shapes, taken, undeclared
from graphopt.verify.jitter import compares, decided_by, jittered, jittered_model, rounds_to_steps
from graphopt.verify.report import CaseReport, OutputReport, Report, Status, worst
from graphopt.verify.runners import CannotLoadError, OrtRunner, RunError, Runner, open_runner
from graphopt.verify.source import ModelLike, Source
from graphopt.verify.structure import leaves

_SIZE_PLANS = 3
_MAX_ATTEMPTS = 48
_ATTEMPTS_ONCE_RUNNING = 12
_SLOW_SECONDS = 10.0
_JITTERS = 4
_MORE_JITTERS = 12
_FEW = 0.01
_FEWEST = 2
"""If at most this share of an output's elements, or this number, differs, more runs check whether that is chance."""
_MAX_JITTERED_BYTES = 1 << 28  # for larger models only the inputs are perturbed
_Runs = list[list[Any]]
GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Request:
    """The settings of a comparison; see `graphopt.verify.compare` for the fields."""

    numerics: str = "rounding"
    seed: int = 0
    sets: tuple[str, ...] | None = None
    inputs: tuple[Feed, ...] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [s for s in self.sets or () if s not in SETS]
        if unknown:
            raise UsageError(f"unknown input set {unknown[0]!r}; expected some of {', '.join(SETS)}")


@dataclass(slots=True)
class _Case:
    set: str
    sizes: dict[str, int]
    feed: Feed
    outputs: list[Any] | None
    seconds: float
    error: str = ""


def run_comparison(
    original: ModelLike, result: ModelLike, request: Request, progress: Callable[[str], None] = lambda _: None
) -> Report:
    """Compare in this process. `progress` is called with the next step, for reports of a crash."""
    started = time.perf_counter()
    before, after = Source(original, "original"), Source(result, "result")
    try:
        request = only_taken(before, request)
        report = _Comparison(before, after, request, progress).run()
    finally:
        before.close()
        after.close()
    return replace(report, seconds=time.perf_counter() - started)


def only_taken(original: Source, request: Request) -> Request:
    """The request with only those arrays that are inputs of the original.

    Raises:
        UsageError: an input of the original has no array.
    """
    if not request.inputs:
        return request
    return replace(request, inputs=tuple(taken(original.proto, feed) for feed in request.inputs))


class _Comparison:
    def __init__(self, before: Source, after: Source, request: Request, progress: Callable[[str], None]) -> None:
        self.before, self.after, self.request, self.progress = before, after, request, progress
        self.old, self.new = interface_of(before.proto), interface_of(after.proto)
        # If negligible weights were set to zero, as metadata states, an infinity times such a weight is now NaN.
        # If channels were removed, an infinity times their zero filters no longer gives NaN; nor does one times a
        # masked probability of zero if these are bounded.
        stated = {entry.key for entry in after.proto.metadata_props}
        self.zeroed = ZEROED_KEY in stated
        self.infinite = not stated & {ZEROED_KEY, REMOVED_KEY, BOUNDED_KEY}
        self.random = random_outputs(before.proto)  # an output that is random in the result alone is wrong
        self.unsteady: dict[int, set[str]] = {}  # outputs by the number of the case
        self.report = Report("inconclusive", request.numerics, request.seed, interface=differences(self.old, self.new))

    def run(self) -> Report:
        try:
            self.progress("loading the original")
            runner = open_runner(self.before)
            cases = list(self._run_original(runner))
        except CannotLoadError as error:
            return self._without_runs(f"the original does not load: {error}")
        except CannotGenerateError as error:
            return self._without_runs(str(error))
        backend = runner.backend
        del runner  # one model in memory at a time
        self.progress("loading the result")
        try:
            preferred = ("onnxruntime",) if backend == "onnxruntime" else ("reference", "onnxruntime")
            runner = open_runner(self.after, preferred)
        except CannotLoadError as error:
            detail = f"the result does not load: {error}"
            if not runs_here(self.after.proto):  # which says nothing of the result
                return self._without_runs(detail)
            return replace(self.report, status="mismatch", backend=backend, detail=detail)
        same = runner.backend == backend
        reports = [self._run_result(case, runner, same_backend=same) for case in cases]
        del runner
        self._leave_out_unsteady(cases, reports, backend)
        reports = self._with_noise(cases, reports, backend)
        return replace(
            self.report,
            status=self._verdict(reports),
            backend=backend if same else f"{backend}/onnxruntime",
            cases=tuple(reports),
            detail=self._detail(reports),
        )

    def _without_runs(self, detail: str) -> Report:
        broken = any(d.breaking for d in self.report.interface)
        return replace(self.report, status="mismatch" if broken else "inconclusive", detail=detail)

    def _verdict(self, reports: Sequence[CaseReport]) -> Status:
        if any(d.breaking for d in self.report.interface):
            return "mismatch"
        told = [r.status for r in reports if r.status != "inconclusive"]
        return worst(told)

    def _detail(self, reports: Sequence[CaseReport]) -> str:
        if any(r.status != "inconclusive" for r in reports):
            return ""
        if not self.old.outputs:
            return "the original has no outputs that could be compared"
        return next((r.detail for r in reports if r.detail), "") or "; ".join(
            dict.fromkeys(o.detail for r in reports for o in r.outputs if o.status == "inconclusive")
        )

    # -- the original

    def _run_original(self, runner: Runner) -> Iterator[_Case]:
        for feed in self.request.inputs:
            yield self._attempt(runner, GIVEN, {}, feed)
        if self.request.inputs and self.request.sets is None:
            return
        sizes = {**sizes_from_shapes(self.before.proto, self.request.shapes), **self.request.dims}
        generator = Generator(self.before.proto, self.request.seed, sizes, infinite=self.infinite)
        generator.check_names(self.request.dims)
        sensible = generator.sets()
        sets = self.request.sets or tuple(s for s in sensible if s != "special" or self.request.numerics != "fast")
        accepted, failure = self._find_plans(runner, generator)
        if not accepted:
            if failure is not None:
                yield failure
            return
        for set_name in sets:
            if set_name not in sensible:
                continue
            if set_name == "ordinary":
                yield from (case for _, case in accepted)
            else:
                yield from self._other_set(runner, generator, set_name, [plan for plan, _ in accepted])

    def _find_plans(self, runner: Runner, generator: Generator) -> tuple[list[tuple[InputPlan, _Case]], _Case | None]:
        """Plans on which the original runs, with their runs, those with results first; and the first failure."""
        accepted: list[tuple[InputPlan, _Case]] = []
        failure: _Case | None = None
        for number, plan in enumerate(generator.plans()):
            limit = _ATTEMPTS_ONCE_RUNNING if accepted else _MAX_ATTEMPTS
            telling = [case for _, case in accepted if not _is_empty(case)]
            done = telling and (plan.policy != "derived" or accepted[0][1].seconds > _SLOW_SECONDS)
            if len(telling) >= _SIZE_PLANS or number >= limit or done:
                break
            for feed in generator.feeds("ordinary", plan):
                case = self._attempt(runner, "ordinary", plan.sizes, feed)
                if case.outputs is not None:
                    accepted.append(self._telling(runner, generator, plan, case))
                elif failure is None:
                    failure = case
        return sorted(accepted, key=lambda found: _is_empty(found[1]))[: _SIZE_PLANS + 1], failure

    def _telling(self, runner: Runner, generator: Generator, plan: InputPlan, case: _Case) -> tuple[InputPlan, _Case]:
        """A plan and its run, or the same plan with flags if all floats are NaN, with which any NaN would agree."""
        if plan.policy == "derived" and _all_nan(case.outputs or ()):
            flags = replace(plan, policy=FLAGS)
            for feed in generator.feeds("ordinary", flags):
                other = self._attempt(runner, "ordinary", flags.sizes, feed)
                if other.outputs is not None and not _all_nan(other.outputs):
                    return flags, other
        return plan, case

    def _other_set(
        self, runner: Runner, generator: Generator, set_name: str, plans: Sequence[InputPlan]
    ) -> Iterator[_Case]:
        """Runs of each feed of the set, for the first plan that runs; the first failure if none does."""
        attempts = [(plan, True) for plan in plans]
        if set_name == "extreme" and plans[0].policy == "derived":
            attempts.insert(0, (replace(plans[0], policy=BOLD), True))
        if set_name == "overrides":
            attempts += [(plan, False) for plan in plans[:1]]
        attempts += [(replace(plans[0], policy=policy), False) for policy in ("bits", "zeros")]
        failure: list[_Case] = []
        for plan, vary_integers in attempts:
            feeds = generator.feeds(set_name, plan, vary_integers=vary_integers)
            cases = [self._attempt(runner, set_name, plan.sizes, feed) for feed in feeds]
            ran = [case for case in cases if case.outputs is not None]
            if ran and (plan.policy != BOLD or not any(_is_empty(case) or self._is_undeclared(case) for case in ran)):
                yield from cases
                return
            failure = failure or cases
        yield from failure

    def _is_undeclared(self, case: _Case) -> bool:
        """Whether an output has other sizes than the original declares: then the model is not made for such inputs."""
        return bool(undeclared(self.old.outputs, case.outputs or ()))

    def _attempt(self, runner: Runner, set_name: str, sizes: dict[str, int], feed: Feed) -> _Case:
        self.progress(f"running the original on {set_name} inputs")
        started = time.perf_counter()
        try:
            outputs = runner.run(feed)
        except RunError as error:
            return _Case(set_name, sizes, feed, None, time.perf_counter() - started, str(error))
        return _Case(set_name, sizes, feed, outputs, time.perf_counter() - started)

    # -- the result

    def _run_result(self, case: _Case, runner: Runner, *, same_backend: bool) -> CaseReport:
        self.progress(f"running the result on {case.set} inputs")
        taken = {s.name for s in (*self.new.inputs, *self.new.overridable)}
        base = CaseReport(case.set, case.sizes, "inconclusive", original_seconds=case.seconds)
        started = time.perf_counter()
        try:
            actual = runner.run({name: value for name, value in case.feed.items() if name in taken})
        except RunError as error:
            base = replace(base, result_seconds=time.perf_counter() - started)
            if case.outputs is None:
                same = str(error) == case.error
                how = f"in the same way: {error}" if same else f"the original: {case.error}; the result: {error}"
                return replace(base, detail=f"both models fail {how}" if same else f"both models fail; {how}")
            return replace(base, status="mismatch", detail=f"the original runs, the result fails: {error}")
        base = replace(base, result_seconds=time.perf_counter() - started)
        if case.outputs is None:
            return replace(base, detail=f"the original fails, the result runs: {case.error}")
        outputs = self._compare_outputs(case.outputs, actual, None)
        if not same_backend:
            outputs = [_across_backends(o) for o in outputs]
        own = undeclared(self.old.outputs, case.outputs)  # the original may break its own declarations, too
        told = "; ".join(t for name, t in undeclared(self.new.outputs, actual).items() if name not in own)
        return replace(base, outputs=tuple(outputs), status="mismatch" if told else _of(outputs), detail=told)

    def _compare_outputs(
        self, expected: Sequence[Any], actual: Sequence[Any], noise: Mapping[str, Any] | None
    ) -> list[OutputReport]:
        given = dict(zip((s.name for s in self.new.outputs), actual, strict=False))
        reports = []
        for spec, value in zip(self.old.outputs, expected, strict=False):
            if spec.name not in given:
                reports.append(OutputReport(spec.name, status="mismatch", detail="the result has no such output"))
                continue
            report = _compare_values(
                spec.name,
                value,
                given[spec.name],
                self.request.numerics,
                (noise or {}).get(spec.name),
                zeroed=self.zeroed,
            )
            if report.status != "equal" and spec.name in self.random:
                detail = f"non-deterministic op {self.random[spec.name]}: its outputs cannot be compared"
                report = replace(report, status="inconclusive", detail=detail)
            reports.append(report)
        return reports

    # -- the original's own steadiness and sensitivity

    def _leave_out_unsteady(self, cases: Sequence[_Case], reports: list[CaseReport], backend: str) -> None:
        """Exclude outputs in which two runs of the original differ: no result can agree with them.

        Some kernels leave memory uninitialized, and operators of other domains may be random. The cases run in reverse
        order, so that uninitialized memory differs.
        """
        doubtful = [i for i, r in enumerate(reports) if _of(r.outputs) == "mismatch"]
        if not doubtful:
            return
        self.progress("running the original again")
        runner = open_runner(self.before, (backend,))
        for i in reversed(doubtful):
            try:
                again = runner.run(cases[i].feed)
            except RunError:
                continue
            pairs = zip(self.old.outputs, cases[i].outputs or (), again, strict=True)
            changed = {s.name for s, a, b in pairs if _compare_values(s.name, a, b, "exact").status != "equal"}
            if changed:
                self.unsteady[i] = changed
                outputs = self._steady(i, reports[i].outputs)
                status = "mismatch" if reports[i].detail else _of(outputs)
                reports[i] = replace(reports[i], outputs=outputs, status=status)

    def _steady(self, number: int, outputs: Iterable[OutputReport]) -> tuple[OutputReport, ...]:
        """The outputs of a case, inconclusive if they differ between two runs of the original."""
        why = "the original gives something else when it runs again: its outputs cannot be compared"
        unsteady = self.unsteady.get(number, ())
        return tuple(
            replace(o, status="inconclusive", detail=why) if o.status == "mismatch" and o.name in unsteady else o
            for o in outputs
        )

    def _with_noise(self, cases: Sequence[_Case], reports: list[CaseReport], backend: str) -> list[CaseReport]:
        """Check mismatches again, with the tolerance widened by the original's sensitivity to one-ulp changes."""
        doubtful = [i for i, r in enumerate(reports) if _of(r.outputs) == "mismatch"]
        if self.request.numerics == "exact" or not doubtful:
            return reports
        self.progress("measuring the original's sensitivity")
        gathered = self._noisy_runs([cases[i] for i in doubtful], backend, range(_JITTERS))
        self._judge_again(doubtful, gathered, cases, reports, backend)
        few = [k for k, i in enumerate(doubtful) if reports[i].status == "mismatch" and _few_differ(reports[i])]
        if few:
            numbers = range(_JITTERS, _JITTERS + _MORE_JITTERS)
            more = self._noisy_runs([cases[doubtful[k]] for k in few], backend, numbers)
            runs = [gathered[k] + extra for k, extra in zip(few, more, strict=True)]
            self._judge_again([doubtful[k] for k in few], runs, cases, reports, backend)
        return reports

    def _judge_again(
        self, doubtful: Sequence[int], moved: Sequence[_Runs], cases: Sequence[_Case], reports: list[CaseReport],
        backend: str,
    ) -> None:  # fmt: skip
        runner = open_runner(self.after, (backend,) if backend == "onnxruntime" else ("reference", "onnxruntime"))
        taken = {s.name for s in (*self.new.inputs, *self.new.overridable)}
        for i, runs in zip(doubtful, moved, strict=True):
            try:
                actual = runner.run({n: v for n, v in cases[i].feed.items() if n in taken})
            except RunError:  # it ran before: the mismatch stands
                continue
            noise = self._noise(cases[i], runs)
            outputs = self._steady(i, self._compare_outputs(cases[i].outputs or (), actual, noise))
            status = "mismatch" if reports[i].detail else _of(outputs)
            reports[i] = replace(reports[i], outputs=outputs, status=status)

    def _noisy_runs(self, cases: Sequence[_Case], backend: str, numbers: Iterable[int]) -> list[_Runs]:
        """Per case, the outputs of the original with inputs and constants changed in their last bits."""
        light = self.before.weight_bytes() <= _MAX_JITTERED_BYTES
        full = self.before.full_proto() if light else None
        exact, free = decided_by(self.before.proto), not compares(self.before.proto)
        gathered: list[_Runs] = [[] for _ in cases]
        for number in numbers:
            source = Source(jittered_model(full, number), "original") if full is not None else self.before
            try:
                # What is inserted may share memory that the runtime plans too small: docs/runtime-differences.md.
                is_runtime = backend == OrtRunner.backend
                runner = OrtRunner(source, reuse=False) if is_runtime else open_runner(source, (backend,))
                for case, runs in zip(cases, gathered, strict=True):
                    moved = jittered(case.feed, number, apart=free and number % _JITTERS > 0, exact=exact)
                    runs.append(runner.run(moved or case.feed))
            except (RunError, CannotLoadError):
                continue
        return gathered

    def _noise(self, case: _Case, runs: Sequence[Sequence[Any]]) -> dict[str, list[levels.Noise | None]]:
        noise: dict[str, list[levels.Noise | None]] = {}
        stepwise = rounds_to_steps(self.before.proto)
        for i, spec in enumerate(self.old.outputs):
            base = leaves((case.outputs or [])[i])
            others = [leaves(run[i]) for run in runs]
            if any([path for path, _ in o] != [path for path, _ in base] for o in others):
                continue
            noise[spec.name] = [
                levels.measure_noise(np.asarray(leaf), [np.asarray(o[k][1]) for o in others], stepwise=stepwise)
                for k, (_, leaf) in enumerate(base)
            ]
        return noise


def _is_empty(case: _Case) -> bool:
    """Whether all outputs of the original are empty."""
    return not any(np.asarray(leaf).size for output in case.outputs or () for _, leaf in leaves(output))


def _all_nan(outputs: Sequence[Any]) -> bool:
    """Whether outputs contain floats, and all of them are NaN."""
    arrays = [np.asarray(leaf) for output in outputs for _, leaf in leaves(output)]
    floats = [array for array in arrays if array.dtype.kind == "f" and array.size]
    return bool(floats) and all(bool(np.isnan(array).all()) for array in floats)


def _few_differ(report: CaseReport) -> bool:
    wrong = [output for output in report.outputs if output.status == "mismatch"]
    return all(0 < output.mismatches <= max(_FEW * output.elements, _FEWEST) for output in wrong)


def _compare_values(
    name: str,
    expected: Any,
    actual: Any,
    level: str,
    noise: Sequence[levels.Noise | None] | None = None,
    *,
    zeroed: bool = False,
) -> OutputReport:
    """Compare arrays, or all arrays in sequences, optionals and maps; the report is that of the worst one."""
    a, b = leaves(expected), leaves(actual)
    if [path for path, _ in a] != [path for path, _ in b]:
        return OutputReport(
            name, status="mismatch", detail=f"expected {len(a)} parts, found {len(b)}, or other keys in them"
        )
    reports = []
    for i, ((path, left), (_, right)) in enumerate(zip(a, b, strict=True)):
        report = levels.compare_arrays(name, left, right, level, noise[i] if noise else None, zeroed=zeroed)
        if path and report.detail:
            report = replace(report, detail=f"at {path}: {report.detail}")
        reports.append(report)
    if not reports:
        return OutputReport(name)
    status = worst([r.status for r in reports])
    return max((r for r in reports if r.status == status), key=lambda r: (r.max_rel, r.mismatches))


def _of(outputs: Sequence[OutputReport]) -> Status:
    """The status of a case: the worst of its outputs, without those that cannot be compared, if there are others."""
    told = [o.status for o in outputs if o.status != "inconclusive"]
    return worst(told) if told or not outputs else "inconclusive"


def _across_backends(output: OutputReport) -> OutputReport:
    """Make a mismatch inconclusive: two implementations differ in last bits, so the result may still be correct."""
    if output.status != "mismatch":
        return output
    return replace(output, status="inconclusive", detail=f"two backends were needed; {output.detail}")
