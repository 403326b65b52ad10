"""Measures convolutions in NCHW and in blocks on this machine, and fits the rates of the cost model to them.

All shapes are in one model, in NCHW and, after a reorder, in blocks, and the profiler times each kernel: both forms
meet the same noise, and weights have left the first-level cache before they are read again, as in a real model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, parser

from graphopt.errors import UsageError
from graphopt.operators.linear import block_diagonal
from graphopt.pipeline.tuning import Progress
from graphopt.records import dataclass
from graphopt.system.files import scratch
from graphopt.system.machine import BLOCKS, Target, host
from graphopt.system.sessions import kernel_events, open_session
from graphopt_passes.layout import timing, weights
from graphopt_passes.layout.blocks import DOMAIN
from graphopt_passes.layout.timing import ConvolutionSizes, LayoutRates, built_in

_ROUNDS = 25
_WARM = 3


@dataclass(frozen=True, slots=True)
class Timed:
    """A convolution to time at batch 1: channels, kernel side, side of the result, stride, groups."""

    inputs: int
    outputs: int
    kernel: int
    side: int
    stride: int = 1
    group: int = 1

    def __str__(self) -> str:
        text = f"{self.kernel}x{self.kernel}, {self.inputs} to {self.outputs} at {self.side}x{self.side}"
        text += f", stride {self.stride}" if self.stride > 1 else ""
        return text + (", depthwise" if self.depthwise else f", {self.group} groups" if self.group > 1 else "")

    @property
    def depthwise(self) -> bool:
        return self.group == self.inputs == self.outputs

    def plain_input(self, block: int) -> bool:
        return self.group == 1 and self.inputs < block

    def shape(self, block: int) -> ConvolutionSizes:
        cells, size = self.kernel**2, (self.side, self.side)
        return ConvolutionSizes.of(self.inputs, self.outputs, cells, size, block, stride=self.stride, group=self.group)


CASES = (
    *(Timed(c, c, 3, s) for c, s in ((16, 56), (20, 56), (24, 56), (32, 56), (64, 56), (128, 28), (256, 14), (512, 7))),
    *(Timed(i, o, 3, s) for i, o, s in ((8, 8, 56), (64, 4, 56), (64, 1, 56), (48, 96, 14))),
    Timed(3, 32, 3, 112, 2), Timed(64, 128, 3, 28, 2), Timed(32, 32, 5, 28), Timed(16, 64, 1, 56),
    *(Timed(c, c, 1, s) for c, s in ((24, 56), (64, 56), (128, 28), (256, 14), (512, 7))),
    *(Timed(i, o, 1, s) for i, o, s in ((24, 144, 56), (144, 24, 56), (40, 240, 28), (240, 40, 28), (96, 576, 14))),
    *(Timed(i, o, 1, s) for i, o, s in ((576, 96, 14), (320, 1280, 7), (960, 160, 7), (64, 4, 56), (64, 12, 56))),
    *(Timed(c, c, 3, s, group=c) for c, s in ((32, 112), (144, 56), (60, 28), (384, 14), (960, 7))),
    *(Timed(c, c, 5, s, group=c) for c, s in ((240, 28), (672, 14))),
    Timed(96, 96, 3, 56, 2, 96), Timed(192, 192, 3, 14, 2, 192), Timed(512, 512, 3, 14, group=32),
)  # fmt: skip
"""Layers of real models, including small ones and badly filled blocks."""


@dataclass(frozen=True, slots=True)
class ConvolutionTimes:
    """Typical microseconds of a case, and of its reorders (0 where there is none)."""

    plain: float
    blocked: float
    enter: float
    leave: float


class LayoutTuner:
    """Measures for `convert_layout_nchwc`."""

    def measure(self, target: Target, progress: Progress) -> dict[str, Any]:
        """Time `CASES` and fit the rates to them."""
        check_is_here(target, blocked=True)
        taken = time_cases(CASES, target.block, progress)
        rates = fit(CASES, taken, target.block, built_in(target))
        rows = []
        for case, times in zip(CASES, taken, strict=True):
            numbers = times.plain, times.blocked, *_model(case, rates, target.block)
            rows.append([str(case), *(round(number, 1) for number in numbers)])
        return {"rates": rates.stated(), "cases": rows}

    def rows(self, figures: dict[str, Any] | None, target: Target) -> list[tuple[str, ...]]:
        """Each case as measured, if it was, and as predicted by the model."""
        titles = ("microseconds on one thread", "NCHW", "blocked", "ratio", "NCHW, model", "blocked, model", "ratio")
        if figures is not None:
            return [titles, *(_cells(name, *numbers) for name, *numbers in figures.get("cases", []))]
        if target.block not in BLOCKS:
            return [("no blocked kernels",)]
        rates = built_in(target)
        return [(titles[0], *titles[4:]), *(_cells(str(case), *_model(case, rates, target.block)) for case in CASES)]


def _cells(name: str, *times: float) -> tuple[str, ...]:
    """A row: pairs of times in NCHW and in blocks, each followed by its ratio."""
    cells = [name]
    for plain, blocked in zip(times[::2], times[1::2], strict=True):
        cells += [f"{plain:.0f}", f"{blocked:.0f}", f"{plain / blocked:.2f}"]
    return tuple(cells)


def _model(case: Timed, rates: LayoutRates, block: int) -> tuple[float, float]:
    shape = case.shape(block)
    return timing.plain(shape, rates), timing.blocked(shape, block, rates)


def check_is_here(target: Target, *, blocked: bool = False) -> None:
    """Raise a `UsageError` unless a target is this machine, with `blocked` kernels if need be."""
    if target != host() or (blocked and target.block not in BLOCKS):
        raise UsageError(f"{target} cannot be measured here: this machine is {host()}")


def operands_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random inputs of a model, of float32 or unsigned bytes."""
    random, feed = np.random.default_rng(0), {}
    for x in model.graph.input:
        dims = [dim.dim_value for dim in x.type.tensor_type.shape.dim]
        is_float = x.type.tensor_type.elem_type == TensorProto.FLOAT
        numbers = random.standard_normal(dims) if is_float else random.integers(0, 255, dims)
        feed[x.name] = numbers.astype(np.float32 if is_float else np.uint8)
    return feed


def profiled(
    models: Sequence[onnx.ModelProto], rounds: int, progress: Progress, what: str
) -> list[list[dict[str, Any]]]:
    """The kernel events of models that have the same inputs, run in turns."""
    feed = operands_of(models[0])
    with scratch() as folder:
        sessions = [open_session(model, profile=folder / f"tune{at}") for at, model in enumerate(models)]
        for turn in range(rounds):
            for session in sessions:
                session.run(None, feed)
            progress(what, (turn + 1) / rounds)
        return [kernel_events(session) for session in sessions]


def time_cases(
    cases: tuple[Timed, ...], block: int, progress: Progress, rounds: int = _ROUNDS
) -> list[ConvolutionTimes]:
    """Typical kernel times of each case, by the runtime's profiler, on one thread."""
    (events,) = profiled([_model_of(cases, block)], rounds + _WARM, progress, "timing convolutions")
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event["name"], []).append(float(event["dur"]))
    # The third smallest is typical: other work on the machine only makes times longer.
    middle = {name: max(sorted(durations[_WARM:])[2], 0.5) for name, durations in times.items()}
    parts = ("plain", "blocked", "enter", "leave")
    return [ConvolutionTimes(*(middle.get(f"{part}{n}", 0.0) for part in parts)) for n in range(len(cases))]


def _model_of(cases: tuple[Timed, ...], block: int) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    inputs, outputs, body = [], [], []
    constants: dict[str, np.ndarray] = {}
    for n, case in enumerate(cases):
        shape = (case.outputs, case.inputs // case.group, case.kernel, case.kernel)
        constants[f"w{n}"] = random.standard_normal(shape).astype(np.float32)
        constants[f"v{n}"], group = _blocked_weight(constants[f"w{n}"], case, block)
        source, side = case.side * case.stride, case.side
        inputs.append(f"float[1, {case.inputs}, {source}, {source}] x{n}")
        outputs += [f"float[1, {case.outputs}, {side}, {side}] {name}{n}" for name in "pb"]
        body.append(_body(n, case, group))
    return model_of(inputs, outputs, body, constants)


def model_of(
    inputs: Iterable[str], outputs: Iterable[str], body: Iterable[str], constants: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """A model of nodes in ONNX's text form, with operators of the standard and blocked ones."""
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17, "{DOMAIN}" : 1]> '
        f"tune ({', '.join(inputs)}) => ({', '.join(outputs)}) {{ {' '.join(body)} }}"
    )
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def _body(n: int, case: Timed, group: int) -> str:
    """The nodes of a case; `Abs` brings the input into the cache, where it is not if it comes from the caller."""
    kernel, stride, pad = case.kernel, case.stride, case.kernel // 2
    window = f"kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], pads = [{pad}, {pad}, {pad}, {pad}]"
    enter = f"[enter{n}] r{n} = {DOMAIN}.ReorderInput (y{n})" if group else ""
    return f"""
        y{n} = Abs (x{n})
        [plain{n}] p{n} = Conv <group = {case.group}, {window}> (y{n}, w{n})
        {enter}
        [blocked{n}] c{n} = {DOMAIN}.Conv <group = {group or 1}, {window}> ({"r" if group else "y"}{n}, v{n})
        [leave{n}] b{n} = {DOMAIN}.ReorderOutput <channels = {case.outputs}> (c{n})
    """


def _blocked_weight(array: np.ndarray, case: Timed, block: int) -> tuple[np.ndarray, int]:
    """The weight of the blocked form and its groups; 0 groups if the input stays in NCHW."""
    shape = case.shape(block)
    if case.depthwise:
        return weights.outputs_blocked(array, (case.outputs,), block), shape.lanes_out
    if case.plain_input(block):
        return weights.outputs_blocked(array, (case.outputs,), block), 0
    array = block_diagonal(array, case.group, shape.merge)
    if case.group > shape.merge:
        return weights.grouped_blocked(array, block), shape.count
    return weights.both_blocked(array, (case.inputs,), (case.outputs,), block), 1


_STEPS = (1.3, 1.1, 1.03)
_SWEEPS = 40
_LEAST_ERROR = 0.05
"""No model of kernels is more exact, however well it fits a few cases."""

Place = tuple[str, int | None]
"""A rate, by the name of its field and, if that is a tuple, its index there."""

_PLACES: tuple[Place, ...] = (
    ("blocked", 0), ("blocked", 1), ("blocked", 2), ("plain", None), ("stream", None), ("weight", None),
    ("unroll", None), ("rows", None), ("pack", None), ("store", None), ("depthwise", None), ("depthwise_stream", None),
    ("plain_depthwise", 0), ("plain_depthwise", 1), ("per_group", None),
)  # fmt: skip


def fit(
    cases: tuple[Timed, ...], taken: list[ConvolutionTimes], block: int, start: LayoutRates, *,
    places: Sequence[Sequence[Place]] = (), steps: Sequence[float] = _STEPS,
) -> LayoutRates:  # fmt: skip
    """The rates that best fit the measured times, found by changing a few at a time by the factors in `steps`.

    Rates in one of the `places` are changed together; each by itself if there are none.
    """
    rates = replace(start, reorder=_reorder_rate(cases, taken, block, start))
    shapes = [case.shape(block) for case in cases]
    loss = _loss_of(shapes, taken, block, rates)
    for step in steps:
        for _ in range(_SWEEPS):
            before = loss
            for together in places or [(place,) for place in _PLACES]:
                for factor in (step, 1 / step):
                    changed = rates
                    for name, at in together:
                        changed = _scaled(changed, name, at, factor)
                    new = _loss_of(shapes, taken, block, changed)
                    if new < loss:
                        rates, loss = changed, new
                        break
            if loss > before * 0.9999:
                break
    return replace(rates, error=max(typical_error(shapes, taken, block, rates), _LEAST_ERROR))


def typical_error(
    shapes: list[ConvolutionSizes], taken: list[ConvolutionTimes], block: int, rates: LayoutRates
) -> float:
    """The median error of the model's ratio of NCHW to blocks, as the absolute value of its logarithm."""
    errors = []
    for shape, measured in zip(shapes, taken, strict=True):
        said = timing.plain(shape, rates) / timing.blocked(shape, block, rates)
        errors.append(abs(math.log(said * measured.blocked / measured.plain)))
    return round(median(errors), 3)


def _scaled(rates: LayoutRates, name: str, at: int | None, factor: float) -> LayoutRates:
    value = getattr(rates, name)
    changed: Any = value * factor if at is None else tuple(v * factor if n == at else v for n, v in enumerate(value))
    return replace(rates, **{name: changed})


def _loss_of(shapes: list[ConvolutionSizes], taken: list[ConvolutionTimes], block: int, rates: LayoutRates) -> float:
    """The sum of the losses of both forms and, twice, of their ratio, by which the pass decides."""
    total = 0.0
    for shape, measured in zip(shapes, taken, strict=True):
        one = math.log(timing.plain(shape, rates) / measured.plain)
        two = math.log(timing.blocked(shape, block, rates) / measured.blocked)
        total += _loss(one) + _loss(two) + 2 * _loss(one - two)
    return total


def _loss(error: float) -> float:
    """Quadratic in small errors, linear in large ones, so that outliers count little."""
    return math.sqrt(1 + (error / 0.2) ** 2) - 1


def _reorder_rate(cases: tuple[Timed, ...], taken: list[ConvolutionTimes], block: int, given: LayoutRates) -> float:
    """The median bytes per microsecond of the reorders that take long enough to measure."""
    found = []
    for case, measured in zip(cases, taken, strict=True):
        size = 4 * weights.padded(case.outputs, block) * case.side**2
        if measured.leave > 5 * given.start:
            found.append(size / (measured.leave - given.start))
    return median(found) if found else given.reorder
