"""Powers with constant exponents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, floats

_Made = Callable[[Rewriter, Value], Value]


def _fourth(rw: Rewriter, x: Value) -> Value:
    square = rw.op("Mul", x, x)
    return rw.op("Mul", square, square)


_SQUARE = 2.0
_WRITTEN: dict[float, tuple[_Made, int]] = {
    _SQUARE: (lambda rw, x: rw.op("Mul", x, x), 1),
    4.0: (_fourth, 2),
    -1.0: (lambda rw, x: rw.op("Reciprocal", x), 1),
    -2.0: (lambda rw, x: rw.op("Reciprocal", rw.op("Mul", x, x)), 2),
    0.5: (lambda rw, x: rw.op("Sqrt", x), 1),
    1.5: (lambda rw, x: rw.op("Mul", x, rw.op("Sqrt", x)), 2),
    -0.5: (lambda rw, x: rw.op("Reciprocal", rw.op("Sqrt", x)), 2),
}
"""How powers are computed, and in how many passes."""


class ConvertPowToProducts(Weighed, OpRule):
    """Compute a power with an exponent of 2, 4, -1, -2, 1/2, 3/2 or -1/2 by `Mul`, `Sqrt` and `Reciprocal`.

    ONNX Runtime calls the general function unless the exponent is 2 or 3, and its loop for squares is slower than
    `Mul`. For halves the operand must never be negative: a root of minus infinity is no number, but a power of it is.
    """

    ops = ("Pow",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, exponent = node.operand(0), node.operand(1)
        array = exponent.array()
        if array.size != 1 or array.ndim > len(x.dims()):
            raise Decline("{} is no single number", exponent.name)
        size = floats(x)
        power = float(array.reshape(-1)[0])
        if power not in _WRITTEN:
            raise Decline("there is no faster form for a power of {}", power)
        if power % 1 and not is_positive(x):
            raise Decline("{} may be negative", x.name)
        write, passes = _WRITTEN[power]
        kind = "square" if power == _SQUARE else "power"
        self.weigh(rw, {"kernel": 1, kind: size}, {"kernel": passes, "element": passes * size})
        return rw.replace(node, [write(rw, x)])


_POSITIVE = frozenset({"Abs", "Exp", "Sigmoid", "Softmax", "ReduceL1", "ReduceL2", "ReduceSumSquare"})
_KEEPING = frozenset(
    {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity", "MaxPool", "ReduceMax", "ReduceMean", "ReduceSum",
     "Reshape", "Sqrt", "Squeeze", "Transpose", "Unsqueeze"}
)  # fmt: skip
_DEEPEST = 6


def is_positive(value: Value, depth: int = 0) -> bool:
    """Whether what computes a value shows that it holds no negative number, and no negative zero."""
    array = value.const(1 << 12)
    if array is not None:
        return bool((np.signbit(array) == 0).all()) and array.dtype.kind == "f"
    node = value.producer
    if node is None or depth == _DEEPEST:
        return False
    if node.op in _POSITIVE:
        return True
    operands = node.operands
    if node.op in _KEEPING:
        return is_positive(node.operand(0), depth + 1)
    if node.op == "Pow":
        exponent = node.operand(1).const()
        return exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) % 2 == 0
    if node.op in ("Mul", "Div") and operands[0] is operands[1]:
        return True
    if node.op in ("Add", "Mul"):
        return all(is_positive(v, depth + 1) for v in operands)
    return node.op == "Max" and any(v.is_const and is_positive(v) and not v.holds(0.0) for v in operands)
