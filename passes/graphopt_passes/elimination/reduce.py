"""Reductions and normalizations over a single element."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Tensor, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list, normal_axes

_SINCE = {"ReduceSum": 13}
"""The opset from which axes are an input; 18 for the others."""


class EliminateNopReduce(OpRule):
    """Remove reductions over no axis, or over axes of size 1 that they keep.

    The sum, mean, product, largest and smallest of one element is that element. Runtimes start sums from 0, so that
    a negative zero loses its sign; hence the level `rounding`.
    """

    name = "eliminate_nop_reduce"
    ops = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {
        "onnxsim": "eliminate_nop_reduce",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the axes and look at their sizes."""
        x = node.inputs[0]
        if x is None:
            return None
        axes = int_list(node, "axes", 1, _SINCE.get(node.op, 18))
        if isinstance(axes, Mismatch):
            return axes
        if not axes and node.attr("noop_with_empty_axes", 0):
            return rw.replace(node, [x])
        if x.shape is None:
            return Mismatch("the rank of {} is not known", x.name)
        over = normal_axes(axes, len(x.shape)) if axes else tuple(range(len(x.shape)))
        if over is None or any(x.shape[axis] != 1 for axis in over):
            return None
        if over and not node.attr("keepdims", 1):
            return Mismatch("it drops axes of size 1, which is a Squeeze")
        return rw.replace(node, [x])


_DTYPES: dict[int, Any] = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
}  # fmt: skip


class EliminateNopSoftmax(OpRule):
    """Replace `Softmax` over an axis of size 1 by ones, and `LogSoftmax` by zeros.

    Not where an element is infinite or no number: there the original gives no number. Hence the level `fast`.
    """

    name = "eliminate_nop_softmax"
    ops = ("Softmax", "LogSoftmax")
    numerics = Numerics.FAST
    opsets = "9-"
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_nop_softmax"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the size of the axis; before opset 13 at all axes from that one on."""
        x = node.inputs[0]
        if x is None:
            return None
        if x.shape is None:
            return Mismatch("the rank of {} is not known", x.name)
        axis = node.attr("axis", 1)
        over = _normalized(x, axis, together=node.graph.opset() < 13)
        if over is None or any(dim != 1 for dim in over):
            return None
        dtype = _DTYPES.get(x.dtype or 0)
        if dtype is None:
            return Mismatch("the element type of {} is not supported", x.name)
        value = Tensor.from_array(np.array([1 if node.op == "Softmax" else 0], dtype))
        return rw.replace(node, [rw.op("ConstantOfShape", rw.op("Shape", x), value=value)])


def _normalized(x: Value, axis: int, *, together: bool) -> tuple[object, ...] | None:
    """The sizes of the axes that are normalized together."""
    shape = x.shape or ()
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    return shape[axis:] if together else shape[axis : axis + 1]
