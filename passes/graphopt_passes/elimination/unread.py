"""Results of which only the shape, the size or few bits are read, and optional outputs that nothing reads."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Transpose
from graphopt.rewrite import Decline, Fired, Node, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.elementwise import UNARY


class EliminateCastBeforeGather(OpRule):
    """Let `Gather`, `GatherElements` and `ScatterElements` read positions of 32 bits that a `Cast` makes longer.

    Only where nothing else reads the longer ones, so that the `Cast` goes away.
    """

    # No pattern: all readers count.
    ops = ("Gather", "GatherElements", "ScatterElements")
    sources = ("Cast",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        positions = node.operand(1)
        short = positions.source("Cast", reader=node).operand(0)
        if short.dtype != TensorProto.INT32 or positions.dtype != TensorProto.INT64:
            raise Decline
        alike = (user.op in self.ops and user.inputs.index(positions) == 1 for user in positions.users)
        if positions.output_count or not all(alike):
            raise Decline("{} has other readers", positions.name)
        return rw.set_input(node, 1, short)


_MEASURES = ("Shape", "Size")


class Measured(PatternRule):
    """Take `Shape` and `Size` of what the operator before them reads.

    Attributes:
        before: the operators that may come before.
    """

    before: ClassVar[tuple[str, ...]]

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """Any number of them may read the result."""
        return op.AnyOf(*_MEASURES)(op.AnyOf(*self.before)(x, ..., _shared=True, _bind="first"), ...)

    def check(self, value: Value) -> None:
        """Decline where something else reads what is measured, so that its operator would not go away."""
        if value.is_output or any(user.op not in _MEASURES for user in value.users):
            raise Decline("{} is not only measured", value.name)


class EliminateCastBeforeShape(Measured):
    """Take `Shape` and `Size` of the input of a `Cast` or another operator that keeps the shape.

    Only where nothing but the measuring reads its result, so that the operator goes away.
    """

    before = (*UNARY, "Identity", "LogSoftmax", "Softmax")  # none fails on account of what its input holds
    peers = {"onnxruntime": "PreShapeNodeElimination"}

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        self.check(m.first.result)
        return rw.set_input(m.root, 0, m.x)


class EliminateTransposeBeforeShape(Measured):
    """Take `Shape` and `Size` of the input of a `Transpose`, the sizes in the other order.

    Only where nothing but the measuring reads its result, so that the `Transpose` goes away.
    """

    before = ("Transpose",)
    opsets = "9-"  # below, an old model cannot hold a new constant of integers
    peers = {"onnxruntime": "TransposeOptimizer"}

    def rewrite(self, m: Match, rw: Rewriter) -> Value | Fired:
        self.check(m.first.result)
        if m.root.op == "Size":
            return rw.set_input(m.root, 0, m.x)
        asked = Transpose.of(m.first).perm[m.root.attr("start", 0) : m.root.attr("end")]
        return rw.op("Gather", rw.op("Shape", m.x), np.array(asked, np.int64))


_OPTIONAL_FROM = {"Dropout": 1, "GRU": 1, "LSTM": 1, "LayerNormalization": 1, "RNN": 1}
"""The first output that may be left out. MaxPool is not here: without indices, runtimes treat NaN in another way."""


class EliminateUnusedOptionalOutputs(OpRule):
    """Leave out optional outputs at the end that nothing reads, such as the last states of `LSTM`.

    A runtime then need not compute and keep them.
    """

    ops = tuple(_OPTIONAL_FROM)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        read = [index for index, value in enumerate(node.outputs) if value and value.uses]
        needed = max((_OPTIONAL_FROM[node.op], *(index + 1 for index in read)))
        if needed >= len(node.outputs):
            raise Decline
        return rw.replace(node, rw.outputs(needed, node.op_type, *node.inputs, **node.attrs))
