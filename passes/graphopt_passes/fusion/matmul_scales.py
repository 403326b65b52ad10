"""Scales around matrix products."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators.affine import Affine
from graphopt.operators.linear import PLAIN_FLOATS, narrowed, narrowed_weights
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.fusion.small_weights import check_scale


class FuseMulIntoMatmul(PatternRule):
    """Fold constants that multiply or divide the result of a `MatMul` into its constant matrix.

    One number per column, or one for all, like layer scale after a linear layer; a constant that is added in between is
    scaled too. No weight may become so small that it loses digits.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers = {"onnxslim": "FusionGemmMul"}

    def pattern(self, op: OpBuilder, x: Pattern, factor: Pattern) -> Pattern:
        """`(x weight + bias) * factor`."""
        product = op.MatMul(x, Var("weight"), _bind="matmul")
        total = op.Add(product, Var("bias"), _bind="add")
        return op.AnyOf("Mul", "Div")(Either(product, total), factor)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """`x (weight * factor) + bias * factor`."""
        product, weight = m.matmul.result, m.weight
        if not weight.is_const or len(weight.dims()) < 2:
            raise Decline("the right operand of {} is not a constant matrix", product.name)
        weight.check_one_use()
        for constant in (weight, m.bias or weight):
            if constant.dtype not in PLAIN_FLOATS:
                raise Decline("the element type of {} is not a float", constant.name)
        matrix = weight.array()
        rank, columns = product.rank or 1, int(matrix.shape[-1])
        value = product if m.add is None else m.add.result
        scale = Affine.of(m.root, value, rank, rank - 1, columns).scale
        assert scale is not None
        check_scale(scale, weight)
        weights = narrowed_weights(_scaled(matrix, scale, "weights"), matrix.dtype)
        scaled = rw.op("MatMul", m.x, rw.constant(weights, like=weight))
        if m.bias is not None:
            row = scale[0] if scale.size and (scale == scale[0]).all() else scale
            bias = m.bias.array()
            if row.shape and bias.shape[-1:] not in ((), (1,), row.shape):
                raise Decline("{} of shape {} cannot be added to {} columns", m.bias.name, bias.shape, columns)
            biases = narrowed(_scaled(bias, row, "biases"), bias.dtype, "biases")
            scaled = rw.op("Add", scaled, rw.constant(biases, like=m.bias))
        return scaled


def _scaled(array: np.ndarray, row: np.ndarray | float, name: str) -> np.ndarray:
    """An array with its last axis scaled, in float64; declines where a number becomes too small for its type."""
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64) * row
        gone = wide.astype(array.dtype) == 0  # an infinite input times such a number is NaN
    smallest = np.finfo(array.dtype).tiny
    before, after = np.abs(array), np.abs(wide)
    small = ((after < smallest) & (before >= smallest)) | (gone & (before > 0))
    if bool((small & (np.asarray(row) != 0)).any()):
        raise Decline("the new {} overflow or underflow in their element type", name)
    return wide


_SMALLEST = 2.0**-20
"""Scales with a smaller product are not fused: numbers that are small already would lose digits."""

_WIDE = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BFLOAT16})
"""Element types with so wide a range that the order of scaling only affects rounding."""


class FuseScalesOfMatmul(PatternRule):
    """Fuse the multiplications of both operands of `MatMul` by one number each into one, on the left.

    Attention is exported like this, with the square root of the scale on queries and on keys. Both numbers are at most
    1, so that no new overflow occurs.
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
    """A number that scales `x` and keeps its shape, and neither overflows nor loses digits when it is moved."""
    array = factor.array()
    if array.size != 1 or len(x.dims()) < max(array.ndim, 1):
        raise Decline("broadcasting {} may enlarge {}", factor.name, x.name)
    if x.dtype not in _WIDE:
        raise Decline("the element type of {} is not known to be float32 or float64", x.name)
    if not _SMALLEST**0.5 <= abs(float(array.item())) <= 1:
        raise Decline("{} is scaled by {:.7g}, expected {:.2g} to 1", x.name, array.item(), _SMALLEST**0.5)
    return array
