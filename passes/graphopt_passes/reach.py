"""What numbers a value can be, as the operators that compute it tell."""

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
"""The least and the largest number that there can be: a least one of 0.0 leaves out negative zero, -0.0 does not."""

ANY: Reach = (-math.inf, math.inf)
_SLACK = 2.0**-7
"""By which share of the numbers rounding may go past what they are."""

_PAST_ONE = 1 + _SLACK
_SIGNED, _UPWARDS = (-_PAST_ONE, _PAST_ONE), (0.0, math.inf)

CURVES: dict[str, Reach] = {
    "HardSigmoid": (-0.0, 1.0), "Sigmoid": (0.0, _PAST_ONE), "Softmax": (0.0, 1.0),
    "Cos": _SIGNED, "Erf": _SIGNED, "Sin": _SIGNED, "Softsign": _SIGNED, "Tanh": _SIGNED,
    "Abs": _UPWARDS, "Exp": _UPWARDS, "ReduceL1": _UPWARDS, "ReduceL2": _UPWARDS, "ReduceSumSquare": _UPWARDS,
    "Softplus": _UPWARDS,
}  # fmt: skip
"""Operators that give nothing else of floats, whatever they read.

Kernels approximate curves: `Sigmoid` and `Tanh` of ONNX Runtime give 1 + 2^-23 here and there, against which a bound of
1 in front of a logarithm or an arc cosine guards.
"""


def _lowest(ends: Iterable[float]) -> float:
    """The least number, of zeros a negative one."""
    return min(ends, key=lambda end: (end, math.copysign(1.0, end)))


def _union(parts: Sequence[Reach]) -> Reach:
    return _lowest(low for low, _ in parts), max(high for _, high in parts)


def _sum(parts: Sequence[Reach]) -> Reach:
    lows, highs = zip(*parts, strict=True)
    return _least(lows), -_least([-high for high in highs])


def _least(ends: Sequence[float]) -> float:
    """What a sum is at the least; only of negative zeros it is one."""
    return sum(ends, -0.0) - _SLACK * max(map(abs, ends))


def _product(parts: Sequence[Reach]) -> Reach:
    low = _lowest(low for low, _ in parts)
    if low < 0:
        return ANY
    highs = [high for _, high in parts]
    return math.copysign(0.0, low), math.inf if math.inf in highs else math.prod(highs) * _PAST_ONE


def _largest(parts: Sequence[Reach]) -> Reach:
    """Of a zero and a negative zero the larger one may be either."""
    low, high = max(low for low, _ in parts), max(high for _, high in parts)
    return low or math.copysign(0.0, _lowest(low for low, _ in parts)), high


def _smallest(parts: Sequence[Reach]) -> Reach:
    return _lowest(low for low, _ in parts), min(high for _, high in parts)


def _power(parts: Sequence[Reach]) -> Reach:
    """With an even exponent it is no negative number."""
    low, high = parts[-1]
    return _UPWARDS if low == high and low % 2 == 0 else ANY


JOINING: dict[str, Callable[[Sequence[Reach]], Reach]] = {
    "Add": _sum, "Concat": _union, "Max": _largest, "Min": _smallest, "Mul": _product, "Pow": _power,
}  # fmt: skip
"""What operators of several operands make of theirs."""


def _mean(part: Reach) -> Reach:
    return _sum([part])


OF_FIRST: dict[str, Callable[[Reach], Reach]] = {
    **dict.fromkeys(KEEPING, lambda part: part),
    "AveragePool": lambda part: _union([_mean(part), (0.0, 0.0)]),  # the padding may count
    "GlobalAveragePool": _mean, "ReduceMean": _mean,
    "ReduceSum": lambda part: _product([part, _UPWARDS]),
    "Sqrt": lambda part: (math.copysign(0.0, part[0]), math.inf),
}  # fmt: skip
"""What operators make of their first operand; a sum is its mean, so many times."""

BOUNDING = ("Clip", "Relu")
_DEEPEST, _WIDEST, _MOST_BYTES = 4, 4, 1 << 12
"""How many operators are looked through, how many operands, and how large a constant is read: it is asked often."""


def reach(value: Value, depth: int = _DEEPEST) -> Reach:
    """The range that all numbers of a value are in, but for NaN."""
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
    """Whether what computes a value shows that it holds no negative number, and no negative zero."""
    low, _ = reach(value)
    return math.copysign(1.0, low) > 0
