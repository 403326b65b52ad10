"""How much a small change is magnified on its way: by constants that values are multiplied with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch
from graphopt_passes.elimination.rows import WEIGHED, has_negligible, read_rows
from graphopt_passes.fusion.batchnorm import read_batchnorm

MOST = float(np.finfo(np.float32).eps) ** -2
"""Products of constants below this leave what is negligible negligible."""

_STEPS = 64
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

_JOINING = frozenset(("Add", "Sub", "Sum", "Mean", "Max", "Min"))
_BOUNDED = frozenset(("Sigmoid", "HardSigmoid", "Tanh", "Erf", "Softmax", "Sin", "Cos"))
_MIXING = frozenset(("Conv", "com.microsoft::FusedConv", "Gemm", "com.microsoft::FusedGemm", "MatMul"))


@dataclass(frozen=True, slots=True)
class _Way:
    """A value on the way, what it was multiplied with so far, and whether its channels are where they were."""

    value: Value
    gain: float
    in_place: bool


def magnified_after(node: Node, *, mixed: bool = True) -> Mismatch | None:
    """Why a small change of what a linear operator computes may become a large one; None when it cannot.

    Every way is followed to a graph output, or to a sum with other values.

    Args:
        node: the operator.
        mixed: whether other outputs of it are not small, so that a sum over all of them is a sum with other values.
    """
    ways = [_Way(value, 1.0, True) for value in node.outputs if value is not None]
    seen: dict[Value, float] = {}
    while ways:
        way = ways.pop()
        if seen.get(way.value, 0.0) >= way.gain:
            continue
        seen[way.value] = way.gain
        if len(seen) > _STEPS:
            return Mismatch("{} reaches more than {} values", node.op, _STEPS)
        for user in way.value.users:
            further = _through(way, user, mixed=mixed)
            if isinstance(further, Mismatch):
                return further
            ways += further
    return None


def _through(way: _Way, user: Node, *, mixed: bool) -> list[_Way] | Mismatch:
    """Where a change goes on to from a reader of a value: nowhere when it is summed up with others there."""
    value = way.value
    if user.graph is not value.graph:
        return Mismatch("{} is read in a body", value.name)
    factor = _factor(user, value)
    if factor is None:
        return Mismatch("{} may magnify {}", user.op, value.name)
    gain = way.gain * factor
    if not gain <= MOST:
        return Mismatch("{} is magnified by up to {:.2g} after it", value.name, gain)
    if user.op in _JOINING and any(_is_ordinary(other) for other in user.inputs if other not in (value, None)):
        return []
    if mixed and way.in_place and user.op in _MIXING and user.attr("group", 1) == 1:
        return []
    in_place = way.in_place and (user.op not in _MOVING or user.op in ("Flatten", "Squeeze"))
    return [_Way(output, gain, in_place) for output in user.outputs if output is not None]


def _factor(user: Node, value: Value) -> float | None:
    """By how much a reader magnifies a value, None when that is not known."""
    if user.op in _POINTWISE or user.op in _MOVING:
        steep = user.op in ("HardSigmoid", "Elu", "LeakyRelu") and abs(float(user.attr("alpha", 1.0)))
        return max(1.0, steep) if value in user.inputs[:1] or user.op == "Concat" else None
    if user.op in _JOINING:
        return 1.0
    others = [other for other in user.inputs if other is not value]
    if user.op == "Mul":
        return _limit(others[0]) if others and others[0] is not None else 1.0
    if user.op == "Div" and others and user.inputs[0] is value:
        return _inverse(others[0])
    if user.op == "PRelu" and others and user.inputs[0] is value:
        return _limit(others[0])
    if user.op == "BatchNormalization" and user.inputs[0] is value:
        affine = read_batchnorm(user)
        return None if isinstance(affine, Mismatch) else float(np.abs(affine[0]).max(initial=0.0))
    return _linear_factor(user, value)


def _linear_factor(user: Node, value: Value) -> float | None:
    """The largest sum of magnitudes of the weights that a linear operator multiplies a value with."""
    for index in WEIGHED.get(user.op, ()):
        weight = user.input(index)
        if weight is not None and weight is not value and weight.is_const and user.op_type not in _RECURRENT:
            rows = read_rows(user, index)
            if isinstance(rows, Mismatch):
                return None
            return float(rows.sums(np.ones((1, 1, 1, 1), bool)).max(initial=0.0))
    return None


_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))


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


def _is_ordinary(value: Value | None) -> bool:
    """Whether a value is computed, and not of an operator that has negligible weights itself."""
    steps = 0
    while value is not None and not value.is_const and steps < _STEPS:
        node = value.producer
        if node is None:
            return True
        if any(has_negligible(node.input(index)) for index in WEIGHED.get(node.op, ())):
            return False
        if node.op not in _POINTWISE:
            return True
        value, steps = node.input(0), steps + 1
    return False


def magnified_before(node: Node, index: int) -> Mismatch | None:
    """Why the activations that a linear operator multiplies with its weights may be enormous; None for ordinary ones.

    Args:
        node: the operator.
        index: the position of its weights.
    """
    data = node.input(1 if index == 0 else 0)
    ways = [(data, 1.0)] if data is not None else []
    seen: set[Value] = set()
    while ways and len(seen) < _STEPS:
        value, gain = ways.pop()
        if value in seen:
            continue
        seen.add(value)
        for source, factor in _sources(value):
            if not gain * factor <= MOST:
                return Mismatch("{} is magnified by up to {:.2g} before it", value.name, gain * factor)
            if source is not None:
                ways.append((source, gain * factor))
    return None


def _sources(value: Value) -> Iterator[tuple[Value | None, float]]:
    """What a value is computed from and what that is multiplied with; None for the value where that ends."""
    node = value.producer
    if node is None:
        return
    if node.op in _POINTWISE or node.op in _MOVING or node.op in _JOINING:
        yield from ((source, 1.0) for source in node.inputs if source is not None and not source.is_const)
    elif node.op in ("Mul", "Div", "BatchNormalization", *WEIGHED):
        for source in node.inputs:
            if source is not None and not source.is_const:
                factor = _factor(node, source)
                linear = node.op in WEIGHED and node.op != "BatchNormalization"
                yield None if linear else source, 1.0 if factor is None else factor
