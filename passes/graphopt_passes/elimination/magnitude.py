"""How much a small change is magnified on its way: by constants that values are multiplied with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.operators.affine import Affine
from graphopt_passes.elimination.rows import WEIGHED

MOST = float(np.finfo(np.float32).eps) ** -2
"""Products of constants below this leave what is negligible negligible."""

_STEPS = 500
"""Values on the way that are looked at, at most."""

_POINTWISE = frozenset(
    ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Selu", "Celu", "Softplus",
     "Softsign", "Mish", "Gelu", "Erf", "Abs", "Neg", "Identity", "Dropout", "ThresholdedRelu", "MaxPool",
     "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Resize", "Upsample", "Pad", "Exp", "Sin", "Cos", "Softmax",
     "com.microsoft::QuickGelu", "com.microsoft::FastGelu", "com.microsoft::Gelu")
)  # fmt: skip
"""Operators that change by about as much as their first input does where that is near zero, and keep channels apart."""

_MOVING = frozenset(
    ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Split", "Slice", "Gather", "Expand", "Tile",
     "DepthToSpace", "SpaceToDepth", "ReduceMean", "ReduceMax", "ReduceMin")
)  # fmt: skip
"""Operators that change no more than their first input does, and may move channels."""

_JUMPING = frozenset(
    ("Sign", "Ceil", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "NonZero", "Mod",
     "Cast")
)  # fmt: skip
"""Operators that jump at zero."""

_STEEP = frozenset(("Reciprocal", "Log", "Sqrt", "Pow", "ArgMax", "ArgMin", "TopK", "IsInf", "IsNaN"))
"""Operators that are steep at zero, or for which it may matter what is the largest there."""

_JOINING = frozenset(("Add", "Sub", "Sum", "Mean", "Max", "Min"))
_BOUNDED = frozenset(("Sigmoid", "HardSigmoid", "Tanh", "Erf", "Softmax", "Sin", "Cos"))
_WITH_BIAS = frozenset(("Conv", "com.microsoft::FusedConv", "ConvTranspose", "Gemm", "com.microsoft::FusedGemm"))
_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
_ORDINARY = 4.0
"""Weights up to this are those of layers that keep the magnitude of what they compute."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A value on the way, what it was multiplied with so far, and whether it was summed up with others."""

    value: Value
    gain: float
    joined: bool


def refuse_magnified_after(node: Node, lost: float, *, summed: bool) -> None:
    """Decline where a small change of what a linear operator computes may become a large one.

    Every way is followed until constants that are far larger are added, or to where the graph ends.

    Args:
        node: the operator.
        lost: by how much its output changes for activations of magnitude 1.
        summed: whether it is a change beside far larger terms, so that only what magnifies it can matter.

    Raises:
        Decline: it may.
    """
    ways = [_Way(value, 1.0, joined=False) for value in node.outputs if value is not None]
    seen: dict[Value, float] = {}
    while ways and len(seen) < _STEPS:
        way = ways.pop()
        if seen.get(way.value, 0.0) >= way.gain:
            continue
        seen[way.value] = way.gain
        for user in way.value.users:
            ways += _through(way, user, lost, summed=summed)


def _through(way: _Way, user: Node, lost: float, *, summed: bool) -> list[_Way]:
    """Where a change goes on to from a reader of a value: nowhere when it vanishes there."""
    value = way.value
    factor = _factor(user, value) if user.graph is value.graph else None
    if factor is None:
        steep = user.op in _STEEP or (user.op == "Div" and user.input(0) is not value)
        if user.graph is value.graph and user.op not in _JUMPING and (summed or (way.joined and not steep)):
            return []
        raise Decline("{} may magnify {}", user.op, value.name)
    linear = user.op in WEIGHED and user.op != "BatchNormalization"
    gain = way.gain * (max(1.0, factor / _ORDINARY) if linear else factor)
    if not gain <= MOST:
        raise Decline("{} is magnified by up to {:.2g} after it", value.name, gain)
    if _least_added(user, value) * float(np.finfo(np.float32).eps) ** 2 >= gain * lost:
        return []
    joined = way.joined or linear or user.op in _JOINING
    return [_Way(output, gain, joined) for output in user.outputs if output is not None]


def _least_added(user: Node, value: Value) -> float:
    """The least magnitude of the constants that an operator adds to what it computes of a value."""
    added = _added(user)
    return float(np.abs(added).min()) if added is not None and added.size and value in user.inputs else 0.0


def _added(node: Node) -> np.ndarray[Any, Any] | None:
    """The constants that an operator adds to its result, None where it adds none."""
    if node.op == "BatchNormalization":
        return _normalization(node).shift
    index = 2 if node.op in _WITH_BIAS else 1 if node.op in ("Add", "Sub") else None
    addend = node.input(index) if index is not None else None
    if node.op == "Add" and addend is not None and not addend.is_const:
        addend = node.input(0)
    array = addend.const() if addend is not None else None
    if array is None or array.dtype.kind != "f":
        return None
    return np.asarray(array.astype(np.float64) * float(node.attr("beta", 1.0)))


def _normalization(node: Node) -> Affine:
    """The scale and shift of a batch normalization, neither where it has none that are known."""
    try:
        return Affine.of_normalization(node)
    except Decline:
        return Affine()


def _factor(user: Node, value: Value) -> float | None:
    """By how much a reader magnifies a value, None when that is not known."""
    if user.op in _POINTWISE or user.op in _MOVING:
        steep = user.op in ("HardSigmoid", "Elu", "LeakyRelu") and abs(float(user.attr("alpha", 1.0)))
        return max(1.0, steep) if value in user.inputs[:1] or user.op == "Concat" else None
    if user.op in _JOINING or (user.op == "Cast" and user.attr("to") in FLOAT_TYPES):
        return 1.0
    if user.op == "Where" and user.inputs[0] is not value:
        return 1.0
    others = [other for other in user.inputs if other is not value]
    if user.op == "Mul":
        return _limit(others[0]) if others and others[0] is not None else 1.0
    if user.op == "Div" and others and user.inputs[0] is value:
        return _inverse(others[0])
    if user.op == "PRelu" and others and user.inputs[0] is value:
        return _limit(others[0])
    if user.op == "BatchNormalization" and user.inputs[0] is value:
        scale = _normalization(user).scale
        return None if scale is None else float(np.abs(scale).max(initial=0.0))
    return _linear_factor(user, value)


def _linear_factor(user: Node, value: Value) -> float | None:
    """The largest weight that a linear operator multiplies a value with."""
    for index in WEIGHED.get(user.op, ()):
        weight = user.input(index)
        array = weight.const() if weight is not None and weight is not value else None
        if array is not None and user.op_type not in _RECURRENT:
            alpha = abs(float(user.attr("alpha", 1.0))) if user.op_type.endswith("Gemm") else 1.0
            return alpha * max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))
    return None


def _limit(value: Value | None, depth: int = 4) -> float | None:
    """The largest magnitude that a value can have, None when that is not known."""
    if value is None:
        return None
    array = value.const()
    if array is not None:
        return float(np.abs(array).max(initial=0.0)) if array.dtype.kind == "f" else None
    node = value.producer
    if node is None or depth == 0:
        return None
    if node.op in _BOUNDED:
        return 1.0
    if node.op == "Clip":
        bounds = [_limit(bound, 0) for bound in node.inputs[1:3]] if node.graph.opset() >= 11 else _clip_bounds(node)
        known = [bound for bound in bounds if bound is not None]
        return max(known) if len(known) == 2 else None
    if node.op in ("Add", "Mul", "Sub"):
        left, right = (_limit(part, depth - 1) for part in node.inputs[:2])
        if left is None or right is None:
            return None
        return left * right if node.op == "Mul" else left + right
    return _limit(node.input(0), depth - 1) if node.op in _MOVING - {"Concat"} or node.op in _KEEPING else None


_KEEPING = frozenset(("Relu", "Identity", "Dropout", "AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool"))


def _clip_bounds(node: Node) -> list[float | None]:
    return [abs(float(node.attrs[name])) if name in node.attrs else None for name in ("min", "max")]


def _inverse(value: Value | None) -> float | None:
    array = value.const() if value is not None else None
    if array is None or array.dtype.kind != "f" or not array.size:
        return None
    least = float(np.abs(array).min())
    return 1.0 / least if least > 0 else None


def refuse_magnified_before(node: Node, index: int) -> None:
    """Decline where the activations that a linear operator multiplies with its weights may be enormous.

    Args:
        node: the operator.
        index: the position of its weights.

    Raises:
        Decline: they may.
    """
    data = node.input(1 if index == 0 else 0)
    ways = [(data, 1.0)] if data is not None else []
    seen: set[Value] = set()
    while ways and len(seen) < _STEPS:
        value, gain = ways.pop()
        maker = value.producer
        if value in seen or maker is None or maker.op in _BOUNDED:
            continue
        seen.add(value)
        added = _added(maker)
        largest = gain * float(np.abs(added).max(initial=0.0)) if added is not None else 0.0
        for source in maker.inputs:
            if source is not None and not source.is_const:
                factor = _factor(maker, source)
                ways.append((source, gain * max(1.0, (factor or 1.0) / _ORDINARY)))
                largest = max(largest, ways[-1][1])
        if not largest <= MOST:
            raise Decline("{} may be as large as {:.2g}", value.name, largest)
