"""Means that are written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.ir.types import element_count
from graphopt.match import FLOAT32, Match, OpBuilder, Pattern, Product
from graphopt.operators import Reduction
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value


class FuseReduceMean(PatternRule):
    """Recognize `ReduceMean`: a `ReduceSum` divided by the number of elements, as JAX writes it, for float32.

    Pools, normalizations and layouts are made of means.
    """

    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """Divided by that number, or multiplied by its reciprocal."""
        return Product(op.ReduceSum(x, ..., _bind="sum"), scale="scale")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        summed = Reduction.of(m.sum)
        sizes = [summed.x.dims()[axis] for axis in summed.axes]
        count = element_count(sizes, unknown=0)
        if not count or np.float32(m.scale) != np.float32(1 / count):
            raise Decline("a sum over sizes {} is not known to be divided by their product", sizes)
        return replace(summed, op="ReduceMean").write(rw)
