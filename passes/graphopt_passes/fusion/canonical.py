"""Operands in a fixed order and operators in a plainer form, most of them opt-in passes of onnxoptimizer."""

from __future__ import annotations

import numpy as np

from graphopt.match import Const, Match, OpBuilder, Pattern, Rest
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value


class AdjustAdd(PatternRule):
    """Put the constant operand of an `Add` second.

    Some runtimes only recognize a bias there. Not part of any level; runs when it is named.
    """

    default = False
    peers = {"onnxoptimizer": "adjust_add"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.Add(Const("constant", silent=True), x, _ordered=True, _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.x.is_const:
            raise Decline
        if not rw.graph.broadcasts("Add"):
            raise Decline("before opset 7 Add broadcasts only its second operand")
        return rw.op("Add", m.x, m.constant)


class AdjustSliceAndMatmul(PatternRule):
    """Slice a product of constants instead of multiplying a slice of one, so that the product can be folded.

    The right factor is a matrix or a vector, and the slice does not cut the axis that the product sums over. Not part
    of any level, since levels fold the slice itself; runs when it is named.
    """

    opsets = "10-"
    numerics = Numerics.ROUNDING  # a single row is multiplied by another kernel
    default = False
    peers = {"onnxoptimizer": "adjust_slice_and_matmul"}

    def pattern(self, op: OpBuilder) -> Pattern:
        return op.MatMul(op.Slice(Const("data"), Rest("cut"), _bind="slice"), Const("right"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Slice the product, with axes counted from the front, since a product with a vector has one axis less."""
        data, axes = m.data, m.slice.ints("axes")
        if len(m.right.dims()) > 2:
            raise Decline("{} is not a matrix or vector", m.right.name)
        if axes is None:
            raise Decline("the axes of the Slice are not known")
        front = [data.axis(axis) for axis in axes]
        if data.axis(-1) in front or len(set(front)) < len(front):
            raise Decline("it slices the contracted axis")
        starts, ends, _, *steps = m.cut
        product = rw.op("MatMul", data, m.right)
        return rw.op("Slice", product, starts, ends, np.array(front, np.int64), *steps)


class RewriteWhere(PatternRule):
    """Swap the branches of a `Where` instead of negating its condition.

    The `Not` stays for its other readers, where it has any. This counts as rounding, since ONNX Runtime's `Where` loses
    the sign of zero in one of its two branches.
    """

    numerics = Numerics.ROUNDING
    peers = {"onnxoptimizer": "rewrite_where", "onnxruntime": "NotWhereFusion"}

    def pattern(self, op: OpBuilder, condition: Pattern, x: Pattern, y: Pattern) -> Pattern:
        return op.Where(op.Not(condition, _shared=True), x, y)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("Where", m.condition, m.y, m.x)
