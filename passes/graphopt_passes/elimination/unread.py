"""Work whose result nobody looks at."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by

_SHAPE_KEEPING = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log",
    "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
})  # fmt: skip
"""Operators whose result has the shape of their first input, and that never fail on account of its contents."""


class EliminateCastBeforeShape(OpRule):
    """Take `Shape` and `Size` of the input of a `Cast` or another operator that keeps the shape.

    Only where nothing but the measuring reads its result, so that the operator goes away.
    """

    name = "eliminate_cast_before_shape"
    ops = ("Shape", "Size")
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "PreShapeNodeElimination"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        value = node.inputs[0]
        first = made_by(value, *_SHAPE_KEEPING)
        if value is None or first is None:
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if value.output_count or any(user.op not in self.ops for user in value.users):
            return Mismatch("{} is not only measured", value.name)
        return rw.set_input(node, 0, first.inputs[0])


class EliminateTransposeBeforeShape(OpRule):
    """Take `Shape` and `Size` of the input of a `Transpose`, the sizes in the other order.

    Only where nothing but the measuring reads its result, so that the `Transpose` goes away.
    """

    name = "eliminate_transpose_before_shape"
    ops = ("Shape", "Size")
    opsets = "9-"  # below, an old model cannot hold a new constant of integers
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "TransposeOptimizer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and read the permutation."""
        value = node.inputs[0]
        transpose = made_by(value, "Transpose")
        if value is None or transpose is None or transpose.inputs[0] is None:
            return None
        x = transpose.inputs[0]
        if transpose.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if value.output_count or any(user.op not in self.ops for user in value.users):
            return Mismatch("{} is not only measured", value.name)
        if node.op == "Size":
            return rw.set_input(node, 0, x)
        rank = value.rank if value.rank is not None else x.rank
        perm = transpose.attr("perm") or (range(rank)[::-1] if rank is not None else None)
        if perm is None:
            return Mismatch("the rank of {} is not known", x.name)
        asked = np.array(perm[node.attr("start", 0) : node.attr("end", len(perm))], np.int64)
        return rw.replace(node, [rw.op("Gather", rw.op("Shape", x), asked)])


_OPTIONAL_FROM = {"Dropout": 1, "GRU": 1, "LSTM": 1, "LayerNormalization": 1, "RNN": 1}
"""The first output that may be left out. MaxPool is not here: without indices, runtimes treat NaN in another way."""


class EliminateUnusedOptionalOutputs(OpRule):
    """Leave out optional outputs at the end that nothing reads, such as the last states of `LSTM`.

    A runtime then need not compute and keep them.
    """

    name = "eliminate_unused_optional_outputs"
    ops = tuple(_OPTIONAL_FROM)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the outputs from the last one on."""
        needed = len(node.outputs)
        while needed > _OPTIONAL_FROM[node.op] and not _is_read(node, needed - 1):
            needed -= 1
        if needed == len(node.outputs):
            return None
        made = rw.op(node.op_type, *node.inputs, outputs=needed, **node.attrs)
        return rw.replace(node, [made] if needed == 1 else list(made))


def _is_read(node: Node, index: int) -> bool:
    value = node.outputs[index]
    return value is not None and value.uses > 0
