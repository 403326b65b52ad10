"""Normalizations over a single element."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Tensor
from graphopt.operators import Softmax
from graphopt.rewrite import Decline, Numerics, OpRule, Outcome, Rewriter

_DTYPES: dict[int | None, Any] = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
}  # fmt: skip


class EliminateNopSoftmax(OpRule):
    """Replace `Softmax` over an axis of size 1 by ones, and `LogSoftmax` by zeros.

    Not where an element is infinite or no number: there the original gives no number. Hence the level `fast`.
    """

    ops = ("Softmax", "LogSoftmax")
    numerics = Numerics.FAST
    opsets = "9-"
    peers = {"onnxsim": "eliminate_nop_softmax"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        if any(x.dims()[axis] != 1 for axis in Softmax.of(node).axes):
            raise Decline
        dtype = _DTYPES.get(x.dtype)
        if dtype is None:
            raise Decline("the element type of {} is not supported", x.name)
        value = Tensor.from_array(np.array([1 if node.op == "Softmax" else 0], dtype))
        return rw.replace(node, [rw.op("ConstantOfShape", rw.op("Shape", x), value=value)])
