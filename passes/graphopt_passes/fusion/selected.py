"""Selections written as arithmetic."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from graphopt.match import Match, OpBuilder, Pattern, Var
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value

_INTEGERS = frozenset({T.INT32, T.INT64})
"""Integer types for which ONNX Runtime implements `Where`."""


class FuseSelectionIntoWhere(PatternRule):
    """Recognize `Where` in `c * x + (not c) * y`, of integers or of two constants.

    tf2onnx writes a selection like that; Keras reads a table at `index + size` where the index is negative. With other
    floats it stays: an infinity that is not selected, times 0, is NaN.
    """

    opsets = "9-"
    numerics = Numerics.ROUNDING  # the sign of a zero may differ

    def pattern(self, op: OpBuilder, x: Pattern, y: Pattern) -> Pattern:
        condition = Var("condition", dtype=T.BOOL)
        chosen = op.Cast(condition, _shared=True, _other_attrs=True)
        other = op.Cast(op.Not(condition, _shared=True), _shared=True, _other_attrs=True)
        return op.Add(op.Mul(x, chosen), op.Mul(y, other))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.root.result.dtype in _INTEGERS:
            return rw.op("Where", m.condition, m.x, m.y)
        for value in (m.x, m.y):
            if value.dtype != T.FLOAT or not value.is_const or not np.isfinite(value.array()).all():
                raise Decline("{} is not known to be finite float32, or not int32 or int64", value.name)
        return rw.op("Where", m.condition, m.x, m.y)
