"""Scales on both sides of a matrix product."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader

_SMALLEST = 2.0**-20
"""A product of scales below this is left: numbers that are small already would lose digits."""

_WIDE = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BFLOAT16})
"""Element types whose range makes the order of scales a matter of rounding."""


class FuseScalesOfMatmul(OpRule):
    """Join the multiplications of both operands of `MatMul` by one number each into one, on the left.

    Exporters write attention so: the root of the scale on the queries and again on the keys. Both numbers are at most
    1, so that nothing overflows that did not before.
    """

    name = "fuse_scales_of_matmul"
    ops = ("MatMul",)
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the number on each side."""
        if len(node.inputs) != 2:
            return None
        one, two = (_scaled(value, node) for value in node.inputs)
        if one is None or two is None:
            return None
        if isinstance(one, Mismatch):
            return one
        if isinstance(two, Mismatch):
            return two
        (left, factor), (right, other) = one, two
        product = float(factor.reshape(-1)[0]) * float(other.reshape(-1)[0])
        scale = np.asarray(product, factor.dtype).reshape(factor.shape)
        return rw.replace(node, [rw.op("MatMul", rw.op("Mul", left, scale), right)])


def _scaled(value: Value | None, reader: Node) -> tuple[Value, np.ndarray] | Mismatch | None:
    """What a value is a multiple of, and the number; None when it is no multiple of anything by one number."""
    producer = made_by(value, "Mul")
    if value is None or producer is None:
        return None
    for at in (1, 0):
        x, factor = producer.input(1 - at), producer.input(at)
        array = factor.const(64) if factor is not None else None
        if x is None or array is None or array.size != 1 or x.is_const:
            continue
        if x.rank is None or x.rank < max(array.ndim, 1):
            return Mismatch("{} may stretch {}", factor.name if factor is not None else "", x.name)
        problem = only_reader(value, reader)
        if problem is not None:
            return problem
        if x.dtype not in _WIDE:
            return Mismatch("the range of {} is narrow", x.name)
        if not _SMALLEST**0.5 <= abs(float(array.reshape(-1)[0])) <= 1:
            return Mismatch("{} is scaled by {}", x.name, float(array.reshape(-1)[0]))
        return x, array
    return None
