"""Scales on both sides of a matrix product."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.match import Const, Match, OpBuilder, Pattern
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value

_SMALLEST = 2.0**-20
"""A product of scales below this is left: numbers that are small already would lose digits."""

_WIDE = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BFLOAT16})
"""Element types whose range makes the order of scales a matter of rounding."""


class FuseScalesOfMatmul(PatternRule):
    """Join the multiplications of both operands of `MatMul` by one number each into one, on the left.

    Exporters write attention so: the root of the scale on the queries and again on the keys. Both numbers are at most
    1, so that nothing overflows that did not before.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, q: Pattern, k: Pattern) -> Pattern:
        """`(a q) (b k)`."""
        return op.MatMul(op.Mul(q, Const("a")), op.Mul(k, Const("b")))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """`(a b q) k`."""
        one, two = _scale(m.a, m.q), _scale(m.b, m.k)
        scale = np.asarray(one.item() * two.item(), one.dtype).reshape(one.shape)
        return rw.op("MatMul", rw.op("Mul", m.q, scale), m.k)


def _scale(factor: Value, x: Value) -> np.ndarray:
    """A number that scales `x`, leaves its shape as it is, and neither overflows nor loses digits at another place."""
    array = factor.array()
    if array.size != 1 or len(x.dims()) < max(array.ndim, 1):
        raise Decline("{} may stretch {}", factor.name, x.name)
    if x.dtype not in _WIDE:
        raise Decline("the range of {} is narrow", x.name)
    if not _SMALLEST**0.5 <= abs(float(array.item())) <= 1:
        raise Decline("{} is scaled by {}", x.name, float(array.item()))
    return array
