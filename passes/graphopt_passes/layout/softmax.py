"""Softmax along an axis that is not the last one."""

from __future__ import annotations

from math import prod

from onnx import TensorProto

from graphopt.operators import Transpose
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.softmax import check_stands_alone

_SMALLEST = 1 << 13
"""Elements below which the operators that are added cost more than is saved."""

_FEW = 16
"""Below this length of the axis, elementwise operators are faster than the kernel, which works row by row."""


class ConvertSoftmaxAxis(OpRule):
    """Compute `Softmax` and `LogSoftmax` along an inner axis by kernels that are fast at it.

    ONNX Runtime's kernel is fast along the last axis only. So the axis is transposed to the end and back; a `Softmax`
    of few values, as heads that predict distributions have it, is spelled out in `ReduceMax`, `Sub`, `Exp`, `ReduceSum`
    and `Div`, which work along rows of the image.
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
            return rw.replace(node, [_spelled(x, axis, rw)], detail="spelled out")
        last = Transpose(x, (*(at for at in range(len(dims)) if at != axis), axis))
        inner = rw.op(node.op_type, last.write(rw), axis=-1)
        return rw.replace(node, [Transpose(inner, last.inverse).write(rw)], detail="transposed")


def _spelled(x: Value, axis: int, rw: Rewriter) -> Value:
    """Softmax by elementwise operators and reductions."""
    powers = rw.op("Exp", rw.op("Sub", x, rw.op("ReduceMax", x, axes=(axis,))))
    return rw.op("Div", powers, rw.op("ReduceSum", powers, axes=(axis,)))
