"""Judges results in which eight-bit integers may differ by one step from the original's.

The difference that such a step makes in floats behind it is more than rounding. So the rest of the original is
computed from the integers of the result: it must give the result's outputs.
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
"""Fraction of the elements that may differ by a step. Of fewer than ten elements, one may.

Ties, halfway between two integers, are not counted: a tensor of a few means may consist of them. But a difference need
not be a tie: a bias rounded to a whole number of steps moves a value by up to half a step, which grows with the scales
of the operands relative to that of the result. A wrong step in a single element of small tensors is not detected here.
Golden cases detect it, and random networks whose scales are powers of two, which must be equal bit for bit.
"""
_HALFWAY = 1e-5
"""Relative distance to a tie, by the value in steps, that counts as one: the rounding of a sum of some 1000 floats."""
_HALFWAY_OF_HALVES = 2.0**-11
"""The same for float16: its rounding error, which the runtime omits between two casts that it inserts."""
_SLACK = 1e-3
"""In steps: dequantized numbers are floats."""
_NUDGE = 2e-5
"""Relative change of each result's scale by which ties are detected: they become other integers."""
_RESULT_SCALES = {
    "QGemm": 7, "QLinearAdd": 6, "QLinearAveragePool": 3, "QLinearConcat": 0, "QLinearConv": 6,
    "QLinearGlobalAveragePool": 3, "QLinearLeakyRelu": 3, "QLinearMatMul": 6, "QLinearMul": 6, "QLinearSigmoid": 3,
    "QLinearSoftmax": 3, "QuantizeLinear": 1,
}  # fmt: skip
"""Positions of the result's scale among the operands, for operators that round to integers."""


@dataclass(frozen=True, slots=True)
class CutValue:
    """A value at which the original is cut.

    Attributes:
        fed: the result's value, from which the rest of the original is computed.
        step: the distance between neighbouring integers.
        floats: names of the floats that the original quantizes to it, and of their scale; none if it is computed
            otherwise.
        halfway: if it is computed otherwise, the elements that the result rounds from ties.
    """

    fed: Array
    step: float = 1.0
    floats: tuple[str, ...] = ()
    halfway: Any = False

    def takes(self, computed: Any, floats: Sequence[Array] = (), halfway: Any = False, few: float = FEW) -> bool:
        """Whether the original's value differs by at most one step, and in few elements.

        Args:
            computed: the original's value.
            floats: the floats that it quantizes, and their scale, if it quantizes here.
            halfway: if it rounds otherwise, the elements that it rounds from ties.
            few: the fraction of the elements that may differ by a step without being ties.
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
    """The outputs that remain to be compared, with those of the original computed from the result's integers.

    Each of these integers differs by at most one step from what the original computes from the preceding ones, at ties
    and in a few other elements. Values whose name stands for another value in the result are skipped, which makes the
    judge stricter.

    Args:
        original: the original.
        result: the result of an optimizer on it.
        feed: the inputs of the original.
        few: the fraction of the elements that may differ by a step without being ties.

    Returns:
        Both lists of outputs without those that are such integers, dequantized or not; None if the models share no
        integers, or cannot be evaluated.
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
    """The original's value at a cut, the floats that it quantizes there, and its ties."""
    return found[name], [found[each] for each in cut.floats], _changed(found[name], runs, name)


def _both(
    original: onnx.ModelProto, result: onnx.ModelProto, feed: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Values that nodes of both models compute, all outputs, and the operands that the original dequantizes.

    None if one of them does not run.
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
    """Eight-bit integers that both models have, or the floats that they are dequantized to, in the original's order."""
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
    """Which elements of a value differ in any of these runs."""
    others = [run[name] for run in runs if _alike(run[name], value)]
    return np.any([other != value for other in others], axis=0) if others else False


def _nudged_runs(model: onnx.ModelProto, feed: Mapping[str, Array], names: list[str]) -> list[dict[str, Any]]:
    """Values of a model with slightly smaller and larger scales, with which ties become other integers."""
    runs = [values_of(_nudged(model, by), dict(feed), names) for by in (1 - _NUDGE, 1 + _NUDGE)]
    return [run for run in runs if run is not None]


def _halfway(values: Array, scale: Array) -> Any:
    """Which floats are, up to rounding, ties between two integers once they are divided by a scale of one element."""
    if scale.size != 1:
        return np.zeros(values.shape, bool)
    with np.errstate(all="ignore"):
        quotients = np.abs(values.astype(np.float64) / float(scale.reshape(-1)[0]))
        rounding = _HALFWAY_OF_HALVES if values.dtype == np.float16 else _HALFWAY
        return np.abs(quotients % 1 - 0.5) <= rounding * (1 + quotients)


def _quantized(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """For integers quantized from floats, the names of the floats and of their scale."""
    return {node.output[0]: tuple(node.input[:2]) for node in model.graph.node if node.op_type == "QuantizeLinear"}


def _dequantized(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "DequantizeLinear"]


def _is_byte(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in (np.uint8, np.int8)


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are arrays of the same type and shape."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return arrays and one.dtype == other.dtype and one.shape == other.shape


def _nudged(model: onnx.ModelProto, by: float) -> onnx.ModelProto:
    """A copy in which operators that round to integers divide by scales multiplied by a factor."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(by, np.float32), _SCALED))
    halves = {tensor.name for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT16}
    for node in model.graph.node:
        changed = onnx.NodeProto.FromString(node.SerializeToString())
        at = _RESULT_SCALES.get(node.op_type, len(node.input))
        scale = "".join(node.input[at : at + 1])  # absent if a product gives floats
        # A factor close to 1 rounds to 1 in float16; ties of such quotients are detected separately.
        if scale and scale not in halves:
            changed.input[at] = f"{node.output[0]}{_SCALED}"
            copy.graph.node.append(onnx.helper.make_node("Mul", [scale, _SCALED], [changed.input[at]]))
        copy.graph.node.append(changed)
    return copy


_SCALED = "/scaled"


def _computed(name: str) -> str:
    return name + "/computed"


def _cut(model: onnx.ModelProto, fed: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy in which nodes whose outputs are fed from outside write them under another name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        node.output[:] = [_computed(name) if name in fed else name for name in node.output]
    return copy
