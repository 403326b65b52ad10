"""How much a small change is magnified on its way: by constants that values are multiplied with."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.operators import Bounds
from graphopt.operators.affine import Affine
from graphopt.operators.rows import WEIGHED, constant
from graphopt.records import dataclass
from graphopt_passes.elementwise import MOVES

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

_MOVING = MOVES | {"ReduceMean", "ReduceMax", "ReduceMin"}
"""Operators that change no more than their first input does, and may move channels."""

_JUMPING = frozenset(
    ("Sign", "Ceil", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "NonZero", "Mod",
     "Cast", "Shrink", "NonMaxSuppression")
)  # fmt: skip
"""Operators that jump at zero."""

_STEEP = frozenset(
    ("Reciprocal", "Log", "Sqrt", "Pow", "ReduceLogSum", "ArgMax", "ArgMin", "TopK", "Hardmax", "Unique", "IsInf",
     "IsNaN", "LpNormalization", "MeanVarianceNormalization", "DynamicQuantizeLinear",
     "com.microsoft::DynamicQuantizeMatMul")
)  # fmt: skip
"""Operators that are steep at zero, divide by the magnitude of all there is, or for which it may matter what is the
largest there."""

_DECIDING = "ai.onnx.ml"
"""The domain of operators that compare with thresholds of their own, or divide by the magnitude of all there is."""

_WITH_EPSILON = {
    "InstanceNormalization": 1e-5, "LayerNormalization": 1e-5, "GroupNormalization": 1e-5, "RMSNormalization": 1e-5,
    "SimplifiedLayerNormalization": 1e-5, "SkipLayerNormalization": 1e-12, "SkipSimplifiedLayerNormalization": 1e-12,
    "GroupNorm": 1e-5, "SkipGroupNorm": 1e-5, "BranchwiseRMSNorm": 1e-5,
}  # fmt: skip
"""Operators that divide by a magnitude to which they add this, where they state nothing else."""

_LEAST_EPSILON = 1e-24
"""Beside that square magnitudes below the largest negligible weight, 1e-31, do not count."""

_JOINING = frozenset(("Add", "Sub", "Sum", "Mean", "Max", "Min"))
_TAKING_IN = _JOINING | {"Where", "Concat", "Pad", "ScatterElements", "ScatterND"}
"""Operators whose constant operands are among what they give, or added to it."""
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


def refuse_magnified_after(node: Node, lost: float, *, summed: bool, factor: float = 1.0, most: float = MOST) -> None:
    """Decline where a small change of what a linear operator computes may become a large one.

    Every way is followed until constants that are far larger are added, or to where the graph ends.

    Args:
        node: the operator.
        lost: by how much its output changes for activations of magnitude 1.
        summed: whether it is a change beside far larger terms, which are zero where all that they weigh is: an
            operator on the way that is not known may magnify it, but none that tells zero from next to zero.
        factor: what the operator itself multiplies with besides.
        most: by how much it may be magnified.
    """
    first = max(1.0, factor, _of_activation(node))
    if not first <= most:
        raise Decline("{} multiplies with up to {:.2g} itself", node.result.name, first)
    ways = [_Way(value, first, joined=False) for value in node.results]
    seen: dict[Value, float] = {}
    while ways and len(seen) < _STEPS:
        way = ways.pop()
        if seen.get(way.value, 0.0) >= way.gain:
            continue
        seen[way.value] = way.gain
        for user in way.value.users:
            ways += _through(way, user, lost, most, summed=summed)


def _through(way: _Way, user: Node, lost: float, most: float, *, summed: bool) -> list[_Way]:
    """Where a change goes on to from a reader of a value: nowhere when it vanishes there."""
    value = way.value
    if user.graph is not value.graph:
        raise Decline("{} is read in an inner graph, where nothing is followed", value.name)
    try:
        factor = _factor(user, value)
    except Decline:
        vanishes = (summed or way.joined) and not _is_steep(user, value)
        jumps = user.op in _JUMPING or user.domain == _DECIDING
        if not vanishes or jumps or user.subgraphs:
            raise Decline("{} may magnify {}", user.op, value.name) from None
        return [_Way(output, way.gain, joined=True) for output in user.results]
    linear = user.op in WEIGHED and user.op != "BatchNormalization"
    gain = way.gain * (max(1.0, factor / _ORDINARY) if linear else factor)
    if not gain <= most:
        raise Decline("{} is magnified by up to {:.2g} after it", value.name, gain)
    if _added(user).min() * float(np.finfo(np.float32).eps) ** 2 >= gain * lost:
        return []
    joined = way.joined or linear or user.op in _JOINING
    return [_Way(output, gain, joined) for output in user.results]


def _is_steep(user: Node, value: Value) -> bool:
    """Whether a reader makes what is next to zero something else than zero."""
    name = user.op.rpartition("::")[2]
    if name in _WITH_EPSILON:
        return not float(user.attr("epsilon", _WITH_EPSILON[name])) >= _LEAST_EPSILON
    if name == "LRN":
        return not float(user.attr("bias", 1.0)) >= _LEAST_EPSILON
    return user.op in _STEEP or (user.op == "Div" and user.operand(0) is not value)


def _added(node: Node) -> np.ndarray[Any, Any]:
    """The magnitudes of the constants that an operator adds to its result; a single 0 where it adds none."""
    added: np.ndarray[Any, Any] | None = None
    if node.op == "BatchNormalization":
        with suppress(Decline):
            added = Affine.of_normalization(node).shift
    elif node.op in _WITH_BIAS:
        added = constant(node, 2).astype(np.float64) * float(node.attr("beta", 1.0))
    elif node.op in ("Add", "Sub"):
        added = constant(node, 0 if node.op == "Add" and not node.operand(1).is_const else 1)
    if added is None or not added.size or added.dtype.kind != "f":
        return np.zeros(1)
    return np.asarray(np.abs(added.astype(np.float64)))


def _factor(user: Node, value: Value) -> float:
    """By how much a reader magnifies a value; declines where that is not known."""
    is_first = value in user.inputs[:1]
    if user.op in _POINTWISE or user.op in _MOVING:
        if not is_first and user.op != "Concat":
            raise Decline
        return _slope(user)
    if user.op in _JOINING or (user.op == "Cast" and user.attr("to") in FLOAT_TYPES):
        return 1.0
    if user.op == "Where" and not is_first:
        return 1.0
    others = [other for other in user.operands if other is not value]
    if user.op == "Mul":
        return _limit(others[0]) if others else 1.0
    if user.op == "Div" and others and is_first:
        return 1.0 / _least(others[0])
    if user.op == "Pow" and is_first and others and _is_power(others[0].array()):
        return 1.0
    if user.op == "PRelu" and others and is_first:
        return max(1.0, _limit(others[0]))
    if user.op == "BatchNormalization" and is_first:
        scale = Affine.of_normalization(user).scale
        assert scale is not None
        return float(np.abs(scale).max(initial=0.0))
    return _of_linear(user, value)


def _slope(user: Node) -> float:
    """By how much an activation magnifies what is near zero, at most; 1 where that is less."""
    slopes = [1.0]
    if user.op in ("HardSigmoid", "Elu", "LeakyRelu"):
        slopes.append(abs(float(user.attr("alpha", 1.0))))
    if user.op == "Selu":
        gamma = abs(float(user.attr("gamma", 1.0)))
        slopes += (gamma, gamma * abs(float(user.attr("alpha", 1.0))))
    return max(slopes)


def _of_activation(node: Node) -> float:
    """By how much the activation of a fused operator may magnify: as much as a parameter of it."""
    alpha = node.attr("activation_alpha", 0.0)  # recurrent operators have one for each of their activations
    given = (*(node.attr("activation_params") or ()), *(alpha if isinstance(alpha, tuple) else (alpha,)))
    return max((abs(float(number)) for number in given), default=0.0)


def _of_linear(user: Node, value: Value) -> float:
    """What a linear operator multiplies a value with, or adds it with; declines where that is not known."""
    factors = []
    if user.op in _WITH_BIAS and value in user.inputs[2:]:
        factors.append(abs(float(user.attr("beta", 1.0))))
    if value in user.inputs[:2]:
        factors.append(_largest_weight(user, value))
    if not factors:
        raise Decline
    return max(factors) * max(1.0, _of_activation(user))


def _is_power(exponents: np.ndarray[Any, Any]) -> bool:
    """Whether these take what is next to zero nearer to it, negative numbers too: 1, 2, 3 and so on."""
    return bool(exponents.size and (exponents >= 1).all() and (exponents == np.floor(exponents)).all())


def _largest_weight(user: Node, value: Value) -> float:
    """The largest weight that a linear operator multiplies a value with; declines where that is not known."""
    if user.op in _RECURRENT or user.op == "BatchNormalization":
        raise Decline
    for index in WEIGHED.get(user.op, ()):
        weight = user.operand(index)
        if weight is not value and weight.is_const:
            alpha = abs(float(user.attr("alpha", 1.0))) if user.op_type.endswith("Gemm") else 1.0
            array = weight.array()
            return alpha * max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))
    raise Decline


def _limit(value: Value, depth: int = 4) -> float:
    """The largest magnitude that a value can have; declines where that is not known.

    A default that a caller may override tells only that it is enormous, where it is.
    """
    if value.tensor is not None:
        limit = float(_floats(value).max(initial=0.0))
        if value.is_const or not limit <= MOST:
            return limit
    node = value.producer
    if node is None or depth == 0:
        raise Decline
    if node.op in _BOUNDED:
        return 1.0
    if node.op == "Clip":
        bounds = Bounds.of(node)
        limit = max(abs(float(bounds.low)), abs(float(bounds.high)))
        if limit >= _LARGEST:
            raise Decline
        return limit
    if node.op in ("Add", "Mul", "Sub"):
        left, right = (_limit(node.operand(index), depth - 1) for index in (0, 1))
        return left * right if node.op == "Mul" else left + right
    if node.op in _MOVING - {"Concat"} or node.op in _KEEPING:
        return _limit(node.operand(0), depth - 1)
    raise Decline


_KEEPING = frozenset(("Relu", "Identity", "Dropout", "AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool"))

_LARGEST = float(np.finfo(np.float32).max)
"""What `Clip` keeps within where it states no bound."""


def _least(value: Value) -> float:
    """The least magnitude of constants; declines where they are not known, or one is zero."""
    array = _floats(value)
    if not array.size or not array.min() > 0:
        raise Decline
    return float(array.min())


def _floats(value: Value) -> np.ndarray[Any, Any]:
    """The magnitudes of constant floats, or of a default; declines where they are neither, or no floats."""
    array = value.tensor.array() if value.tensor is not None else value.array()
    if array.dtype.kind != "f":
        raise Decline
    return np.asarray(np.abs(array))


def refuse_magnified_before(node: Node, index: int, most: float = MOST) -> float:
    """Decline where the activations that an operator multiplies with its weights, operand `index`, may be enormous.

    Returns:
        How large they may be for inputs of magnitude 1, of what is known.
    """
    ways = [(node.operand(1 if index == 0 else 0), 1.0)]
    seen: set[Value] = set()
    found = 1.0
    while ways and len(seen) < _STEPS:
        value, gain = ways.pop()
        maker = value.producer
        if value in seen or maker is None or maker.op in _BOUNDED:
            continue
        seen.add(value)
        gains = {
            source: gain * _growth(maker, source)
            for source in maker.inputs
            if source is not None and not source.is_const
        }
        largest = max((gain * float(_added(maker).max()), gain * _taken_in(maker), *gains.values()))
        if not largest <= most:
            raise Decline("{} may be as large as {:.2g}", value.name, largest)
        found = max(found, largest)
        ways += gains.items()
    return found


def _taken_in(maker: Node) -> float:
    """The largest magnitude of the constants that an operator gives among the others."""
    if maker.op not in _TAKING_IN:
        return 0.0
    given = [value.array() for value in maker.operands if value.is_const]
    return max((float(np.abs(array).max(initial=0.0)) for array in given if array.dtype.kind == "f"), default=0.0)


def _growth(maker: Node, source: Value) -> float:
    """By how much an operator magnifies what it reads beyond what layers do; 1 where that is not known."""
    try:
        return max(1.0, _factor(maker, source) / _ORDINARY)
    except Decline:
        return 1.0
