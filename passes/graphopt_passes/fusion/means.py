"""Means written out as sums and quotients, or as pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto

from graphopt.ir.types import element_count
from graphopt.match import FLOAT32, Either, Match, OpBuilder, Pattern, Product, Var
from graphopt.operators import Reduction
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value


class FuseReduceMean(PatternRule):
    """Recognize `ReduceMean`: a `ReduceSum` divided by the number of elements, as JAX writes it, for float32.

    Passes for pools, normalizations and layouts look for means. A `GlobalAveragePool` over the last of three axes,
    which tf2onnx makes of the means of a written-out normalization, is one too; it takes up to 1.6 times as long.
    """

    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """A sum divided by the number of elements, or multiplied by its reciprocal; or a pool."""
        pool = op.GlobalAveragePool(Var("row", dtype=TensorProto.FLOAT, rank=3))
        return Either(Product(op.ReduceSum(x, ..., _bind="sum"), scale="scale"), pool)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.row is not None:
            return rw.op("ReduceMean", m.row, axes=(2,))
        summed = Reduction.of(m.sum)
        sizes = [summed.x.dims()[axis] for axis in summed.axes]
        count = element_count(sizes, unknown=0)
        if not count or np.float32(m.scale) != np.float32(1 / count):
            raise Decline("a sum over sizes {} is not known to be divided by their product", sizes)
        return replace(summed, op="ReduceMean").write(rw)
