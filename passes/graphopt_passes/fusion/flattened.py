"""Matrix products of rows that are flattened in another axis order."""

from __future__ import annotations

import math

import numpy as np

from graphopt.match import Const, Match, OpBuilder, Pattern
from graphopt.operators import Transpose
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value


class FuseTransposeIntoFlattenedGemm(PatternRule):
    """Fold a `Transpose` that is flattened for a matrix product into the row order of the constant matrix.

    TensorFlow flattens images with the channels last, so that a `Transpose` stands between the convolutions and the
    first dense layer. The batch axis must stay first.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        turned = op.Transpose(x, ..., _bind="transpose")
        flat = op.AnyOf("Flatten", "Reshape")(turned, ..., _bind="flat")
        return op.AnyOf("Gemm", "MatMul")(flat, Const("matrix", silent=True), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        sizes = m.transpose.result.dims()[1:]
        order = [axis - 1 for axis in Transpose.of(m.transpose).perm]
        if order[:1] != [-1]:
            raise Decline("the batch of {} does not stay the first axis", m.x.name)
        if not all(isinstance(size, int) and size for size in sizes):
            raise Decline("a size of {} is not known", m.x.name)
        flat = m.flat.result
        m.matrix.check_one_use()
        matrix = m.matrix.array()
        rows = matrix.T if m.root.attr("transB", 0) else matrix
        is_matrix = rows.ndim == 2 and flat.dims()[1:] == rows.shape[:1] == (math.prod(sizes),)
        if m.root.attr("transA", 0) or not is_matrix:
            raise Decline("{} is not known to have one row per batch element", flat.name)
        moved = rows.reshape(*sizes, rows.shape[1]).transpose(*np.argsort(order[1:]), len(sizes)).reshape(rows.shape)
        stored = np.ascontiguousarray(moved.T if m.root.attr("transB", 0) else moved)
        straight = rw.op("Flatten", m.x, axis=1)
        others = m.root.inputs[2:]
        return rw.op(m.root.op, straight, rw.constant(stored, like=m.matrix), *others, **m.root.attrs)
