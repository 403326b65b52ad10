"""Results of which readers use only the shape, the size or few bits, and unused optional outputs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Transpose
from graphopt.rewrite import Decline, Fired, Node, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.elementwise import UNARY


class EliminateCastBeforeGather(OpRule):
    """Remove a `Cast` of int32 indices to int64 before `Gather`, `GatherElements` and `ScatterElements`.

    Only if it has no other readers, so that the `Cast` becomes unused.
    """

    # No pattern: the rule depends on all readers.
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
    """Compute `Shape` and `Size` from the operand of the operator before them.

    Attributes:
        before: the operators that may precede.
    """

    before: ClassVar[tuple[str, ...]]

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """The result may have several readers."""
        return op.AnyOf(*_MEASURES)(op.AnyOf(*self.before)(x, ..., _shared=True, _bind="first"), ...)

    def check(self, value: Value) -> None:
        """Decline if the value has other readers than `Shape` and `Size`, so that its operator would stay."""
        if value.is_output or any(user.op not in _MEASURES for user in value.users):
            raise Decline("{} has readers other than Shape and Size", value.name)


class EliminateCastBeforeShape(Measured):
    """Compute `Shape` and `Size` from the input of a `Cast` or another operator that keeps the shape.

    Only if the result has no other readers, so that the operator becomes unused.
    """

    before = (*UNARY, "Identity", "LogSoftmax", "Softmax")  # none fails because of its input's contents
    peers = {"onnxruntime": "PreShapeNodeElimination"}

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        self.check(m.first.result)
        return rw.set_input(m.root, 0, m.x)


class EliminateTransposeBeforeShape(Measured):
    """Compute `Shape` and `Size` from the input of a `Transpose`, with the sizes permuted.

    Only if the result has no other readers, so that the `Transpose` becomes unused.
    """

    before = ("Transpose",)
    opsets = "9-"  # before, new integer constants are not possible in models of old IR versions
    peers = {"onnxruntime": "TransposeOptimizer"}

    def rewrite(self, m: Match, rw: Rewriter) -> Value | Fired:
        self.check(m.first.result)
        if m.root.op == "Size":
            return rw.set_input(m.root, 0, m.x)
        asked = Transpose.of(m.first).perm[m.root.attr("start", 0) : m.root.attr("end")]
        return rw.op("Gather", rw.op("Shape", m.x), np.array(asked, np.int64))


_OPTIONAL_FROM = {"Dropout": 1, "GRU": 1, "LSTM": 1, "LayerNormalization": 1, "RNN": 1}
"""The first optional output. MaxPool is not listed: without indices, runtimes treat NaN differently."""


class EliminateUnusedOptionalOutputs(OpRule):
    """Remove unused optional outputs at the end, such as the last states of `LSTM`.

    A runtime then need not compute and store them.
    """

    ops = tuple(_OPTIONAL_FROM)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        read = [index for index, value in enumerate(node.outputs) if value and value.uses]
        needed = max((_OPTIONAL_FROM[node.op], *(index + 1 for index in read)))
        if needed >= len(node.outputs):
            raise Decline
        return rw.replace(node, rw.outputs(needed, node.op_type, *node.inputs, **node.attrs))
