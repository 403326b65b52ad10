"""Bounds on how much later operators magnify a small change, by multiplying with constants."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Tensor, Value
from graphopt.operators import Bounds
from graphopt.operators.affine import Affine
from graphopt.operators.rows import WEIGHED, constant
from graphopt.records import dataclass
from graphopt_passes.elementwise import MOVES

MOST = float(np.finfo(np.float32).eps) ** -2
"""Largest product of constants at which a negligible change stays negligible."""

_STEPS = 500
"""Most values that are visited."""

_POINTWISE = frozenset(
    ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Selu", "Celu", "Softplus",
     "Softsign", "Mish", "Gelu", "Erf", "Abs", "Neg", "Identity", "Dropout", "ThresholdedRelu", "MaxPool",
     "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Resize", "Upsample", "Pad", "Exp", "Sin", "Cos", "Softmax",
     "com.microsoft::QuickGelu", "com.microsoft::FastGelu", "com.microsoft::Gelu")
)  # fmt: skip
"""Operators of slope about 1 near zero in their first input, which do not mix channels."""

_MOVING = MOVES | {"ReduceMean", "ReduceMax", "ReduceMin"}
"""Operators whose result changes no more than their first input, and which may move channels."""

_JUMPING = frozenset(
    ("Sign", "Ceil", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "NonZero", "Mod",
     "Cast", "Shrink", "NonMaxSuppression")
)  # fmt: skip
"""Operators that are discontinuous at zero."""

_STEEP = frozenset(
    ("Reciprocal", "Log", "Sqrt", "Pow", "ReduceLogSum", "ArgMax", "ArgMin", "TopK", "Hardmax", "Unique", "IsInf",
     "IsNaN", "LpNormalization", "MeanVarianceNormalization", "DynamicQuantizeLinear",
     "com.microsoft::DynamicQuantizeMatMul")
)  # fmt: skip
"""Operators that are steep at zero, divide by the magnitude of their whole operand, or depend on the position of its
largest element."""

_DECIDING = "ai.onnx.ml"
"""The domain of operators that compare with thresholds, or divide by the magnitude of their whole operand."""

_WITH_EPSILON = {
    "InstanceNormalization": 1e-5, "LayerNormalization": 1e-5, "GroupNormalization": 1e-5, "RMSNormalization": 1e-5,
    "SimplifiedLayerNormalization": 1e-5, "SkipLayerNormalization": 1e-12, "SkipSimplifiedLayerNormalization": 1e-12,
    "GroupNorm": 1e-5, "SkipGroupNorm": 1e-5, "BranchwiseRMSNorm": 1e-5,
}  # fmt: skip
"""Operators that divide by a magnitude plus an epsilon, with its default."""

_LEAST_EPSILON = 1e-24
"""Least epsilon beside which squared magnitudes below the largest negligible weight, 1e-31, do not matter."""

_JOINING = frozenset(("Add", "Sub", "Sum", "Mean", "Max", "Min"))
_TAKING_IN = _JOINING | MOVES | {"GatherElements", "GatherND", "Pad", "ScatterElements", "ScatterND", "Where"}
"""Operators whose result contains their constant operands, or their sum with others."""
_BOUNDED = frozenset(("Sigmoid", "HardSigmoid", "Tanh", "Erf", "Softmax", "Sin", "Cos"))
_WITH_BIAS = frozenset(("Conv", "com.microsoft::FusedConv", "ConvTranspose", "Gemm", "com.microsoft::FusedGemm"))
_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
_ORDINARY = 4.0
"""Weights up to this are assumed to keep the magnitude of activations."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A value to visit, the gain up to it, and whether the change was added to other values."""

    value: Value
    gain: float
    joined: bool


def refuse_magnified_after(node: Node, lost: float, *, summed: bool, factor: float = 1.0, most: float = MOST) -> None:
    """Decline if later operators may magnify a small change in the result of a linear operator.

    Every path is followed until far larger constants are added, or to the end of the graph.

    Args:
        node: the operator.
        lost: the change of its output for activations of magnitude 1.
        summed: whether the change is added to far larger terms, which vanish only if all their activations are zero:
            then unknown operators are allowed on a path, but none that distinguishes zero from nearly zero.
        factor: an additional factor of the operator itself.
        most: the largest gain allowed.
    """
    first = max(1.0, factor, _of_activation(node))
    if not first <= most:
        raise Decline("{} itself multiplies by up to {:.2g}", node.result.name, first)
    ways = [_Way(value, first, joined=False) for value in node.results]
    seen: dict[Value, float] = {}
    while ways and len(seen) < _STEPS:
        way = ways.pop()
        if seen.get(way.value, 0.0) >= way.gain:
            continue
        seen[way.value] = way.gain
        ways += [_Way(value, way.gain, way.joined) for value in _behind_branch(way.value)]
        for user in way.value.users:
            ways += _through(way, user, lost, most, summed=summed)


def _behind_branch(value: Value) -> list[Value]:
    """The outputs of an `If` that are a value of its branch; declines if the value leaves another body, or a function.

    A loop returns it to its body, and each call of a function has other readers.
    """
    graph, owner = value.graph, value.graph.owner
    if not value.is_output or graph is graph.model.graph:
        return []
    if owner is None or owner.op != "If":
        raise Decline("{} is an output of {}, outside of which nothing is analyzed", value.name, graph.name)
    return [result for inner, result in zip(graph.outputs, owner.outputs, strict=False) if inner is value and result]


def _through(way: _Way, user: Node, lost: float, most: float, *, summed: bool) -> list[_Way]:
    """The next values that a change reaches through a reader; none if it vanishes there."""
    value = way.value
    if user.graph is not value.graph:
        raise Decline("{} is read in a subgraph, which is not analyzed", value.name)
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
        raise Decline("{} is later multiplied by up to {:.2g}", value.name, gain)
    if _added(user).min() * float(np.finfo(np.float32).eps) ** 2 >= gain * lost:
        return []
    joined = way.joined or linear or user.op in _JOINING
    return [_Way(output, gain, joined) for output in user.results]


def _is_steep(user: Node, value: Value) -> bool:
    """Whether a reader may map nearly zero values far from its result at zero."""
    name = user.op.rpartition("::")[2]
    if name in _WITH_EPSILON:
        return not float(user.attr("epsilon", _WITH_EPSILON[name])) >= _LEAST_EPSILON
    if name == "LRN":
        return not float(user.attr("bias", 1.0)) >= _LEAST_EPSILON
    return user.op in _STEEP or _tells_places(user) or (user.op == "Div" and user.operand(0) is not value)


def _tells_places(user: Node) -> bool:
    """Whether a pool tells the places of its largest elements."""
    return user.op == "MaxPool" and any(place.uses for place in user.results[1:])


def _added(node: Node) -> np.ndarray[Any, Any]:
    """The magnitudes of the constants that an operator adds to its result; a single 0 if it adds none."""
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
    """The factor by which a reader magnifies a value; declines if it is unknown."""
    is_first = value in user.inputs[:1]
    if _tells_places(user):
        raise Decline
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
    """The largest slope of an activation near zero, but at least 1."""
    slopes = [1.0]
    if user.op in ("HardSigmoid", "Elu", "LeakyRelu"):
        slopes.append(abs(float(user.attr("alpha", 1.0))))
    if user.op == "Selu":
        gamma = abs(float(user.attr("gamma", 1.0)))
        slopes += (gamma, gamma * abs(float(user.attr("alpha", 1.0))))
    return max(slopes)


def _of_activation(node: Node) -> float:
    """An upper bound of the slope of a fused activation: its largest parameter."""
    alpha = node.attr("activation_alpha", 0.0)  # recurrent operators have one per activation
    given = (*(node.attr("activation_params") or ()), *(alpha if isinstance(alpha, tuple) else (alpha,)))
    return max((abs(float(number)) for number in given), default=0.0)


def _of_linear(user: Node, value: Value) -> float:
    """The largest factor of a value in a linear operator, as data or as bias; declines if it is unknown."""
    factors = []
    if user.op in _WITH_BIAS and value in user.inputs[2:]:
        factors.append(abs(float(user.attr("beta", 1.0))))
    if value in user.inputs[:2]:
        factors.append(_largest_weight(user, value))
    if not factors:
        raise Decline
    return max(factors) * max(1.0, _of_activation(user))


def _is_power(exponents: np.ndarray[Any, Any]) -> bool:
    """Whether powers with these exponents keep small numbers small, negative ones included: 1, 2, 3 and so on."""
    return bool(exponents.size and (exponents >= 1).all() and (exponents == np.floor(exponents)).all())


def _largest_weight(user: Node, value: Value) -> float:
    """The largest weight that a linear operator multiplies a value with; declines if it is unknown."""
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
    """An upper bound of a value's magnitude; declines if none is known.

    The default of an overridable initializer only counts if it exceeds `MOST`.
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
"""The default bound of `Clip`."""


def _least(value: Value) -> float:
    """The least magnitude of constants; declines if they are unknown, or one is zero."""
    array = _floats(value)
    if not array.size or not array.min() > 0:
        raise Decline
    return float(array.min())


def _floats(value: Value) -> np.ndarray[Any, Any]:
    """The magnitudes of constant floats, or of an overridable default; declines for other values."""
    array = value.tensor.array() if value.tensor is not None else value.array()
    if array.dtype.kind != "f":
        raise Decline
    return np.asarray(np.abs(array))


def refuse_magnified_before(node: Node, index: int, most: float = MOST) -> float:
    """Decline if the activations that an operator multiplies with its weights, operand `index`, may be enormous.

    Returns:
        Their largest magnitude for inputs of magnitude 1, as far as known.
    """
    ways = [(node.operand(1 if index == 0 else 0), 1.0)]
    seen: set[Value] = set()
    found = 1.0
    while ways and len(seen) < _STEPS:
        value, gain = ways.pop()
        maker = value.producer
        if value.is_input and value.graph is not value.graph.model.graph:
            raise Decline("{} is an input of {}, outside of which nothing is analyzed", value.name, value.graph.name)
        if value in seen or maker is None or maker.op in _BOUNDED:
            continue
        seen.add(value)
        made: list[Value] = []
        if maker.op == "If":
            made = [each for body in maker.subgraphs.values() for each in body.outputs[value.index :][:1]]
            ways += [(each, gain) for each in made]
        elif maker.subgraphs or maker.op.startswith("call "):
            raise Decline("{} is computed in a body or a function, which is not analyzed", value.name)
        gains = {
            source: gain * _growth(maker, source)
            for source in maker.inputs
            if source is not None and not source.is_const
        }
        largest = max((gain * float(_added(maker).max()), gain * _taken_in(maker, made), *gains.values()))
        if not largest <= most:
            raise Decline("{} may be as large as {:.2g}", value.name, largest)
        found = max(found, largest)
        ways += gains.items()
    return found


def _taken_in(maker: Node, made: list[Value]) -> float:
    """The largest magnitude of the constants that an operator's result contains, or that branches give as `made`."""
    given = maker.operands if maker.op in _TAKING_IN else made
    tensors = [value.constant_tensor for value in given]
    return max((tensor.figure("largest", partial(_largest_of, tensor)) for tensor in tensors if tensor), default=0.0)


def _largest_of(tensor: Tensor) -> float:
    array = tensor.array()
    return float(np.abs(array).max(initial=0.0)) if array.dtype.kind == "f" else 0.0


def _growth(maker: Node, source: Value) -> float:
    """The factor by which an operator magnifies a value beyond ordinary layers; 1 if unknown."""
    try:
        return max(1.0, _factor(maker, source) / _ORDINARY)
    except Decline:
        return 1.0
