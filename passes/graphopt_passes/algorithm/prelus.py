"""PRelu with a slope for each channel."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.algorithm.work import Weighed, size_of

_SMALLEST = 1 << 14
"""Elements below which the kernel foresees which of them are negative."""


class ConvertPreluToMin(Weighed, OpRule):
    """Spell out a `PRelu` as Relu(x) + slope * Min(x, 0).

    ONNX Runtime's kernel looks up the slope for each element; the four operators take a ninth of its time. What is in
    the blocked layout by then has a form of its own.
    """

    ops = ("PRelu",)
    numerics = Numerics.ROUNDING
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, slope = node.operand(0), node.operand(1)
        if x.dtype != TensorProto.FLOAT:
            raise Decline
        array = slope.array()
        if x.rank is None or array.ndim > x.rank:
            raise Decline("the rank of {} is not known to be that of the result", x.name)
        if not np.isfinite(array).all():
            raise Decline("{} is not finite", slope.name)
        dims = x.dims()
        if any(size not in (1, dim) for size, dim in zip(array.shape[::-1], dims[::-1], strict=False)):
            raise Decline("{} is not known to have the shape {} broadcasts to", x.name, slope.name)
        size = size_of(x)
        if size < _SMALLEST and all(isinstance(dim, int) for dim in dims):
            raise Decline("{} is small: the kernel is faster there", x.name)
        self.weigh(rw, {"kernel": 1, "prelu": size}, {"kernel": 4, "element": 4 * size})
        below = rw.op("Mul", rw.op("Min", x, np.array(0, np.float32)), slope)
        return rw.replace(node, [rw.op("Add", rw.op("Relu", x), below)])
