"""Ranges of values, derived from the operators that compute them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.operators import Bounds
from graphopt.rewrite import Decline
from graphopt_passes.elementwise import KEEPING

Reach = tuple[float, float]
"""A lower and an upper bound; a lower bound of 0.0 excludes negative zero, -0.0 includes it."""

ANY: Reach = (-math.inf, math.inf)
_SLACK = 2.0**-7
"""Relative error of bounds by rounding."""

_PAST_ONE = 1 + _SLACK
_SIGNED, _UPWARDS = (-_PAST_ONE, _PAST_ONE), (0.0, math.inf)

CURVES: dict[str, Reach] = {
    "HardSigmoid": (-0.0, 1.0), "Sigmoid": (0.0, _PAST_ONE), "Softmax": (0.0, 1.0),
    "Cos": _SIGNED, "Erf": _SIGNED, "Sin": _SIGNED, "Softsign": _SIGNED, "Tanh": _SIGNED,
    "Abs": _UPWARDS, "Exp": _UPWARDS, "ReduceL1": _UPWARDS, "ReduceL2": _UPWARDS, "ReduceSumSquare": _UPWARDS,
    "Softplus": _UPWARDS,
}  # fmt: skip
"""Ranges of operators on floats, for any operand.

Kernels are approximations: `Sigmoid` and `Tanh` of ONNX Runtime may return 1 + 2^-23, against which an upper bound of 1
before a logarithm or an arc cosine guards.
"""


def _lowest(ends: Iterable[float]) -> float:
    """The minimum, where -0.0 < 0.0."""
    return min(ends, key=lambda end: (end, math.copysign(1.0, end)))


def _union(parts: Sequence[Reach]) -> Reach:
    return _lowest(low for low, _ in parts), max(high for _, high in parts)


def _sum(parts: Sequence[Reach]) -> Reach:
    lows, highs = zip(*parts, strict=True)
    return _least(lows), -_least([-high for high in highs])


def _least(ends: Sequence[float]) -> float:
    """A lower bound of a sum; it is -0.0 only for a sum of negative zeros."""
    return sum(ends, -0.0) - _SLACK * max(map(abs, ends))


def _product(parts: Sequence[Reach]) -> Reach:
    low = _lowest(low for low, _ in parts)
    if low < 0:
        return ANY
    highs = [high for _, high in parts]
    return math.copysign(0.0, low), math.inf if math.inf in highs else math.prod(highs) * _PAST_ONE


def _largest(parts: Sequence[Reach]) -> Reach:
    """The range of a maximum; max(0.0, -0.0) may be either zero."""
    low, high = max(low for low, _ in parts), max(high for _, high in parts)
    return low or math.copysign(0.0, _lowest(low for low, _ in parts)), high


def _smallest(parts: Sequence[Reach]) -> Reach:
    return _lowest(low for low, _ in parts), min(high for _, high in parts)


def _power(parts: Sequence[Reach]) -> Reach:
    """The range of a power; with an even exponent it is not negative."""
    low, high = parts[-1]
    return _UPWARDS if low == high and low % 2 == 0 else ANY


JOINING: dict[str, Callable[[Sequence[Reach]], Reach]] = {
    "Add": _sum, "Concat": _union, "Max": _largest, "Min": _smallest, "Mul": _product, "Pow": _power,
}  # fmt: skip
"""The range of operators of several operands, from the ranges of their operands."""


def _mean(part: Reach) -> Reach:
    return _sum([part])


OF_FIRST: dict[str, Callable[[Reach], Reach]] = {
    **dict.fromkeys(KEEPING, lambda part: part),
    "AveragePool": lambda part: _union([_mean(part), (0.0, 0.0)]),  # padding may count
    "GlobalAveragePool": _mean, "ReduceMean": _mean,
    "ReduceSum": lambda part: _product([part, _UPWARDS]),
    "Sqrt": lambda part: (math.copysign(0.0, part[0]), math.inf),
}  # fmt: skip
"""The range of operators from the range of their first operand; a sum is its mean times a count."""

BOUNDING = ("Clip", "Relu")
_DEEPEST, _WIDEST, _MOST_BYTES = 4, 4, 1 << 12
"""Most operators followed, operands per operator, and bytes of a constant: `reach` is called often."""


def reach(value: Value, depth: int = _DEEPEST) -> Reach:
    """The range that contains all elements of a value, except NaN."""
    node, constant = value.producer, value.const(_MOST_BYTES)
    if constant is not None and constant.size and constant.dtype.kind in "fiu":
        low, high = float(constant.min()), float(constant.max())
        low = low or (-0.0 if np.signbit(constant).any() else 0.0)
        return (low, high) if math.isfinite(low) and math.isfinite(high) else ANY
    if node is None or not depth or value.dtype not in FLOAT_TYPES or len(node.inputs) > _WIDEST:
        return ANY
    return CURVES.get(node.op) or _follow(node, depth - 1)


def _follow(node: Node, depth: int) -> Reach:
    if node.op in BOUNDING:
        with suppress(Decline):
            bounds = Bounds.of(node)
            raised = _largest([reach(bounds.x, depth), (bounds.low, bounds.low)])
            return _smallest([raised, (bounds.high, bounds.high)])
    if node.op in ("Div", "Mul") and node.operand(0) is node.operand(1):
        return _UPWARDS
    if node.op in JOINING:
        return JOINING[node.op]([reach(operand, depth) for operand in node.operands])
    return OF_FIRST[node.op](reach(node.operand(0), depth)) if node.op in OF_FIRST else ANY


def is_positive(value: Value) -> bool:
    """Whether the operators that compute a value show that it has neither negative elements nor -0.0."""
    low, _ = reach(value)
    return math.copysign(1.0, low) > 0
