"""Softmax along an axis that is not the last one."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter

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

    name = "convert_softmax_axis"
    ops = ("Softmax", "LogSoftmax")
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "13-"
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Replace one node."""
        x = node.input(0)
        shape = x.shape if x is not None else None
        if x is None or shape is None or x.dtype != TensorProto.FLOAT:
            return None
        axis = int(node.attr("axis", -1))
        if not -len(shape) <= axis < len(shape) or axis % len(shape) == len(shape) - 1:
            return None
        axis %= len(shape)
        if all(dim == 1 for dim in shape[axis + 1 :]):
            return Mismatch("the values of {} lie one after the other", x.name)
        known = [dim for dim in shape if isinstance(dim, int)]
        if len(known) == len(shape) and prod(known) < _SMALLEST:
            return Mismatch("{} is small", x.name)
        length = shape[axis]
        if node.op == "Softmax" and isinstance(length, int) and length < _FEW:
            return rw.replace(node, [_spelled(x, axis, rw)], detail="spelled out")
        order = [at for at in range(len(shape)) if at != axis] + [axis]
        back = [order.index(at) for at in range(len(shape))]
        inner = rw.op(node.op_type, rw.op("Transpose", x, perm=tuple(order)), axis=-1)
        return rw.replace(node, [rw.op("Transpose", inner, perm=tuple(back))], detail="transposed")


def _spelled(x: Value, axis: int, rw: Rewriter) -> Any:
    """Softmax by elementwise operators and reductions."""
    axes = np.array([axis], np.int64)
    # ReduceMax takes its axes as an input from opset 18 on, ReduceSum from 13 on.
    top = rw.op("ReduceMax", x, axes) if rw.graph.opset() >= 18 else rw.op("ReduceMax", x, axes=(axis,))
    powers = rw.op("Exp", rw.op("Sub", x, top))
    return rw.op("Div", powers, rw.op("ReduceSum", powers, axes))
