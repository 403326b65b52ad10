"""Work whose result nobody looks at."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Transpose
from graphopt.rewrite import OpRule, Outcome, Rewriter

_MEASURES = ("Shape", "Size")

_SHAPE_KEEPING = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log",
    "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
"""Operators whose result has the shape of their first input, and that never fail on account of its contents."""


def _only_measured(node: Node, *ops: str) -> Node:
    """The operator whose result `Shape` and `Size` alone read; no pattern, for there may be any number of them.

    Raises:
        Decline: it is another one, or has other uses.
    """
    value = node.operand(0)
    first = value.source(*ops, reader=node)
    if value.is_output or any(user.op not in _MEASURES for user in value.users):
        raise Decline("{} is not only measured", value.name)
    return first


class EliminateCastBeforeShape(OpRule):
    """Take `Shape` and `Size` of the input of a `Cast` or another operator that keeps the shape.

    Only where nothing but the measuring reads its result, so that the operator goes away.
    """

    name = "eliminate_cast_before_shape"
    ops = _MEASURES
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "PreShapeNodeElimination"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        return rw.set_input(node, 0, _only_measured(node, *_SHAPE_KEEPING).operand(0))


class EliminateTransposeBeforeShape(OpRule):
    """Take `Shape` and `Size` of the input of a `Transpose`, the sizes in the other order.

    Only where nothing but the measuring reads its result, so that the `Transpose` goes away.
    """

    name = "eliminate_transpose_before_shape"
    ops = _MEASURES
    opsets = "9-"  # below, an old model cannot hold a new constant of integers
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "TransposeOptimizer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and read the permutation."""
        first = _only_measured(node, "Transpose")
        if node.op == "Size":
            return rw.set_input(node, 0, first.operand(0))
        transpose = Transpose.of(first)
        asked = transpose.perm[node.attr("start", 0) : node.attr("end")]
        return rw.replace(node, [rw.op("Gather", rw.op("Shape", transpose.x), np.array(asked, np.int64))])


_OPTIONAL_FROM = {"Dropout": 1, "GRU": 1, "LSTM": 1, "LayerNormalization": 1, "RNN": 1}
"""The first output that may be left out. MaxPool is not here: without indices, runtimes treat NaN in another way."""


class EliminateUnusedOptionalOutputs(OpRule):
    """Leave out optional outputs at the end that nothing reads, such as the last states of `LSTM`.

    A runtime then need not compute and keep them.
    """

    name = "eliminate_unused_optional_outputs"
    ops = tuple(_OPTIONAL_FROM)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Count the outputs up to the last that is read."""
        read = [index for index, value in enumerate(node.outputs) if value is not None and value.uses]
        needed = max((_OPTIONAL_FROM[node.op], *(index + 1 for index in read)))
        if needed >= len(node.outputs):
            raise Decline
        made = rw.op(node.op_type, *node.inputs, outputs=needed, **node.attrs)
        return rw.replace(node, [made] if needed == 1 else made)
