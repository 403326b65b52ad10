"""Softmax along an axis that is not the last one."""

from __future__ import annotations

from math import prod

from onnx import TensorProto

from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.algorithm.softmax import along_last, check_stands_alone, spelled_out

_SMALLEST = 1 << 13
"""Elements below which the operators that are added cost more than is saved."""

_FEW = 16
"""Below this length of the axis elementwise operators are faster than the kernel."""


class ConvertSoftmaxAxis(OpRule):
    """Compute `Softmax` and `LogSoftmax` along an inner axis by kernels that are fast at it.

    ONNX Runtime's kernel is fast along the last axis only, so the axis is transposed there and back. A `Softmax` of few
    values is spelled out in reductions and elementwise operators, which work along rows of the image.
    """

    ops = ("Softmax", "LogSoftmax")
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "13-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        dims, axis = x.dims(), x.axis(node.attr("axis", -1))
        if x.dtype != TensorProto.FLOAT or axis == len(dims) - 1:
            raise Decline
        if all(dim == 1 for dim in dims[axis + 1 :]):
            raise Decline("the values of {} lie one after the other", x.name)
        if all(isinstance(dim, int) for dim in dims) and prod(x.sizes()) < _SMALLEST:
            raise Decline("{} is small", x.name)
        check_stands_alone(node)
        length = dims[axis]
        if node.op == "Softmax" and isinstance(length, int) and length < _FEW:
            return rw.replace(node, [spelled_out(x, axis, rw)], detail="spelled out")
        return rw.replace(node, [along_last(node, x, axis, rw)], detail="transposed")
