"""What numbers a value can be, as the operators that compute it tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.operators import Bounds
from graphopt.rewrite import Decline

Reach = tuple[float, float]
"""The least and the largest number that there can be."""

ANY: Reach = (-math.inf, math.inf)
_SLACK = 2.0**-7
"""By which share of the numbers rounding may go past what they are."""

_PAST_ONE = 1 + _SLACK
_UNIT, _SIGNED, _UPWARDS = (0.0, 1.0), (-_PAST_ONE, _PAST_ONE), (0.0, math.inf)

CURVES: dict[str, Reach] = {
    "HardSigmoid": _UNIT, "Sigmoid": (0.0, _PAST_ONE), "Softmax": _UNIT,
    "Cos": _SIGNED, "Erf": _SIGNED, "Sin": _SIGNED, "Softsign": _SIGNED, "Tanh": _SIGNED,
    "Abs": _UPWARDS, "Exp": _UPWARDS, "ReduceL1": _UPWARDS, "ReduceL2": _UPWARDS, "ReduceSumSquare": _UPWARDS,
    "Softplus": _UPWARDS, "Sqrt": _UPWARDS,
}  # fmt: skip
"""Operators that give nothing else of floats, whatever they read.

Kernels approximate curves: `Sigmoid` and `Tanh` of ONNX Runtime give 1 + 2^-23 here and there, against which a bound of
1 in front of a logarithm or an arc cosine guards.
"""

AVERAGING = ("AveragePool", "GlobalAveragePool", "ReduceMean")

KEEPING = (
    "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that give numbers of their first operand.

Pools that give its largest do not: of nothing but NaN the runtime's give the lowest number.
"""


def _union(parts: Sequence[Reach]) -> Reach:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _sum(parts: Sequence[Reach]) -> Reach:
    lows, highs = zip(*parts, strict=True)
    return _least(lows), -_least([-high for high in highs])


def _least(ends: Sequence[float]) -> float:
    return sum(ends) - _SLACK * max(map(abs, ends))


def _product(parts: Sequence[Reach]) -> Reach:
    if any(low < 0 for low, _ in parts):
        return ANY
    highs = [high for _, high in parts]
    return 0.0, math.inf if math.inf in highs else math.prod(highs) * _PAST_ONE


JOINING: dict[str, Callable[[Sequence[Reach]], Reach]] = {
    "Add": _sum, "Concat": _union, "Mul": _product,
    "Max": lambda parts: (max(low for low, _ in parts), max(high for _, high in parts)),
    "Min": lambda parts: (min(low for low, _ in parts), min(high for _, high in parts)),
}  # fmt: skip
"""What operators of several operands make of theirs."""

BOUNDING = ("Clip", "Relu")
_DEEPEST, _WIDEST, _MOST_BYTES = 4, 4, 1 << 12
"""How many operators are looked through, how many operands, and how large a constant is read: it is asked often."""


def reach(value: Value, depth: int = _DEEPEST) -> Reach:
    """The range that all numbers of a value are in, but for NaN."""
    node, constant = value.producer, value.const(_MOST_BYTES)
    if constant is not None and constant.size and constant.dtype.kind in "fiu":
        ends = float(constant.min()), float(constant.max())
        return ends if all(map(math.isfinite, ends)) else ANY
    if node is None or not depth or value.dtype not in FLOAT_TYPES or len(node.inputs) > _WIDEST:
        return ANY
    return CURVES.get(node.op) or _follow(node, depth - 1)


def _follow(node: Node, depth: int) -> Reach:
    if node.op in JOINING:
        if node.op == "Mul" and node.operand(0) is node.operand(1):
            return _UPWARDS
        return JOINING[node.op]([reach(operand, depth) for operand in node.operands])
    if node.op in BOUNDING:
        with suppress(Decline):
            bounds = Bounds.of(node)
            low, high = (min(max(end, bounds.low), bounds.high) for end in reach(bounds.x, depth))
            return low, high
    if node.op in AVERAGING:
        mean = _sum([reach(node.operand(0), depth)])
        return _union([mean, (0.0, 0.0)]) if node.op == "AveragePool" else mean  # the padding may count
    return reach(node.operand(0), depth) if node.op in KEEPING else ANY
