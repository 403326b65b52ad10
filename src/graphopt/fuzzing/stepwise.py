"""Judging results in which integers of eight bits may be one step from the original's.

What such an integer makes of floats behind it is no rounding any more. So the rest of the original is computed from the
integers of the result: it must give the result's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphopt.fuzzing.branches import with_branches_taken
from graphopt.fuzzing.usual import values_of
from graphopt.verify.values import Array

FEW = 0.1
"""Part of the elements that may be a step apart. Where there are fewer than ten, one may be: a tenth of them is none.

Those that were halfway between two integers are not counted: a tensor of a few means may have nothing else. But a value
need not lie there: a bias that became a whole number of steps moves it by up to half of one, which is as large as the
scales of the operands make it beside that of the result. What is wrong by one step in one element of small tensors
alone is not seen here. Golden cases are there for that, and random networks whose scales are powers of two, which have
to be equal in each bit.
"""
_HALFWAY = 1e-5
"""How far from halfway a value may be, by its size in steps: what a sum of some thousand floats is rounded by."""
_HALFWAY_OF_HALVES = 2.0**-11
"""The same of float16: what one of them is rounded by. The runtime leaves that out between two casts of its own."""
_SLACK = 1e-3
"""Of a step: dequantized numbers are floats."""
_NUDGE = 2e-5
"""By what part of it the scale of each result is changed, to see which integers were halfway: they become others."""
_RESULT_SCALES = {
    "QGemm": 7, "QLinearAdd": 6, "QLinearAveragePool": 3, "QLinearConcat": 0, "QLinearConv": 6,
    "QLinearGlobalAveragePool": 3, "QLinearLeakyRelu": 3, "QLinearMatMul": 6, "QLinearMul": 6, "QLinearSigmoid": 3,
    "QLinearSoftmax": 3, "QuantizeLinear": 1,
}  # fmt: skip
"""Where among the operands the scale of the result is, of operators that round to integers."""


@dataclass(frozen=True, slots=True)
class CutValue:
    """A value at which the original is cut.

    Attributes:
        fed: what the result has there, of which the rest of the original is computed.
        step: how far apart neighbours are.
        floats: names of the floats that the original quantizes to it, and of their scale; none where something else
            makes it.
        halfway: where something else does, which elements the result rounds from what is halfway.
    """

    fed: Array
    step: float = 1.0
    floats: tuple[str, ...] = ()
    halfway: Any = False

    def takes(self, computed: Any, floats: Sequence[Array] = (), halfway: Any = False, few: float = FEW) -> bool:
        """Whether what the original computes is no more than a step away, in few places.

        Args:
            computed: what it computes.
            floats: those that it quantizes, and their scale, where it does that.
            halfway: where something else rounds it, which elements it rounds from what is halfway.
            few: the part of the elements that may be a step away and were not halfway.
        """
        if not _alike(computed, self.fed):
            return False
        apart = np.abs(computed.astype(np.float64) - self.fed.astype(np.float64)) / self.step
        if not np.isfinite(apart).all():
            return False
        steps = np.rint(apart)
        counted = np.where(_halfway(*floats) if floats else self.halfway & halfway, 0, steps)
        near = np.count_nonzero(counted) <= (few and max(1, few * steps.size)) and steps.max(initial=0) <= 1
        return bool(near and (np.abs(apart - steps) <= _SLACK).all())


def after_steps(
    original: onnx.ModelProto, result: onnx.ModelProto, feed: Mapping[str, Array], few: float = FEW
) -> tuple[list[Any], list[Any]] | None:
    """The outputs that remain to be compared, where those of the original are computed from the result's integers.

    Each of these integers is at most one step from what the original computes from those before it, where that is
    halfway between two, and in a few other places. Values whose name means something else in the result are passed
    over, which makes the judge stricter.

    Args:
        original: the original.
        result: what an optimizer made of it.
        feed: the inputs of the original.
        few: the part of the elements that may be a step away and were not halfway.

    Returns:
        Both lists of outputs without those that are such integers, dequantized or not; None where the two models have
        no integers in common, or it cannot be seen.
    """
    names = [info.name for info in original.graph.output]
    original, result = (with_branches_taken(model, feed) for model in (original, result))
    values = _both(original, result, feed)
    cuts = _cuts(original, *values, _nudged_runs(result, feed, list(values[1]))) if values is not None else {}
    while values is not None and cuts:
        fed = {name: cut.fed for name, cut in cuts.items()}
        computed, given, apart = [_computed(name) for name in cuts], {**feed, **fed}, _cut(original, fed)
        asked = [*names, *computed, *(name for cut in cuts.values() for name in cut.floats)]
        found = values_of(apart, given, list(dict.fromkeys(asked)))
        if found is None:
            return None
        runs = _nudged_runs(apart, given, computed)
        told = {name: _told(found, cut, runs, _computed(name)) for name, cut in cuts.items()}
        far = next((name for name, cut in cuts.items() if not cut.takes(*told[name], few)), None)
        if far is None:
            rest = [name for name in names if name not in cuts]
            return [found[name] for name in rest], [values[1][name] for name in rest]
        del cuts[far]  # only the first: those behind it were computed from it
    return None


def _told(
    found: Mapping[str, Any], cut: CutValue, runs: Sequence[Mapping[str, Any]], name: str
) -> tuple[Any, list[Any], Any]:
    """What the original computes at a cut, the floats that it quantizes there, and what is halfway."""
    return found[name], [found[each] for each in cut.floats], _changed(found[name], runs, name)


def _both(
    original: onnx.ModelProto, result: onnx.ModelProto, feed: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Outputs, values that nodes of both make, and what the original dequantizes.

    None where one of them does not run.
    """
    made, kept = ([name for n in model.graph.node for name in n.output if name] for model in (original, result))
    common = [name for name in made if name in set(kept)]
    read = [name for node in _dequantized(original) for name in node.input[:2]]
    names = [info.name for info in original.graph.output]
    old = values_of(original, dict(feed), list(dict.fromkeys((*names, *common, *read))))
    new = values_of(result, dict(feed), list(dict.fromkeys((*names, *common))))
    return (old, new) if old is not None and new is not None else None


def _cuts(
    original: onnx.ModelProto, old: Mapping[str, Any], new: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> dict[str, CutValue]:
    """Integers of eight bits that both models have, or what they are dequantized to, in the original's order."""
    floats = _quantized(original)
    cuts = {
        name: CutValue(value, floats=floats.get(name, ()), halfway=_changed(value, runs, name))
        for name, value in new.items()
        if _is_byte(value) and _alike(old.get(name), value)
    }
    for node in _dequantized(original):
        (name,), (integers, scale) = node.output, (old[each] for each in node.input[:2])
        if (
            node.input[0] not in cuts
            and _is_byte(integers)
            and scale.size == 1
            and _alike(old.get(name), new.get(name))
        ):
            step = abs(float(scale.reshape(-1)[0]))
            if 0 < step < np.inf:
                halfway = _changed(new[name], runs, name)
                cuts[name] = CutValue(new[name], step, floats.get(node.input[0], ()), halfway)
    return {name: cuts[name] for node in original.graph.node for name in node.output if name in cuts}


def _changed(value: Any, runs: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Which elements of a value are others in one of some runs."""
    others = [run[name] for run in runs if _alike(run[name], value)]
    return np.any([other != value for other in others], axis=0) if others else False


def _nudged_runs(model: onnx.ModelProto, feed: Mapping[str, Array], names: list[str]) -> list[dict[str, Any]]:
    """Values of a model with scales a little smaller and larger, by which what is halfway becomes another integer."""
    runs = [values_of(_nudged(model, by), dict(feed), names) for by in (1 - _NUDGE, 1 + _NUDGE)]
    return [run for run in runs if run is not None]


def _halfway(values: Array, scale: Array) -> Any:
    """Which floats are as good as halfway between two integers once they are divided by a scale of one element."""
    if scale.size != 1:
        return np.zeros(values.shape, bool)
    with np.errstate(all="ignore"):
        quotients = np.abs(values.astype(np.float64) / float(scale.reshape(-1)[0]))
        rounding = _HALFWAY_OF_HALVES if values.dtype == np.float16 else _HALFWAY
        return np.abs(quotients % 1 - 0.5) <= rounding * (1 + quotients)


def _quantized(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """For integers that floats are quantized to, the names of these and of their scale."""
    return {node.output[0]: tuple(node.input[:2]) for node in model.graph.node if node.op_type == "QuantizeLinear"}


def _dequantized(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "DequantizeLinear"]


def _is_byte(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in (np.uint8, np.int8)


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are arrays of one type and shape."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return arrays and one.dtype == other.dtype and one.shape == other.shape


def _nudged(model: onnx.ModelProto, by: float) -> onnx.ModelProto:
    """A copy in which operators that round to integers divide by scales that are so many times as large."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(by, np.float32), _SCALED))
    halves = {tensor.name for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT16}
    for node in model.graph.node:
        changed = onnx.NodeProto.FromString(node.SerializeToString())
        at = _RESULT_SCALES.get(node.op_type, len(node.input))
        scale = "".join(node.input[at : at + 1])  # none where a product gives floats
        # A factor next to 1 is 1 to halves, and what they divide is seen by itself.
        if scale and scale not in halves:
            changed.input[at] = f"{node.output[0]}{_SCALED}"
            copy.graph.node.append(onnx.helper.make_node("Mul", [scale, _SCALED], [changed.input[at]]))
        copy.graph.node.append(changed)
    return copy


_SCALED = "/scaled"


def _computed(name: str) -> str:
    return name + "/computed"


def _cut(model: onnx.ModelProto, fed: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy whose nodes give values that come from outside another name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        node.output[:] = [_computed(name) if name in fed else name for name in node.output]
    return copy
