"""Conditions of selections."""

from __future__ import annotations

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.rewrite import Numerics, PatternRule, Rewriter, Value


class RewriteWhere(PatternRule):
    """Swap the choices of a `Where` instead of negating its condition.

    The `Not` stays for its other readers, where it has any. It counts as rounding, since ONNX Runtime's `Where` loses
    the sign of zero in one of its two choices.
    """

    numerics = Numerics.ROUNDING
    peers = {"onnxoptimizer": "rewrite_where", "onnxruntime": "NotWhereFusion"}

    def pattern(self, op: OpBuilder, condition: Pattern, x: Pattern, y: Pattern) -> Pattern:
        """A negated condition."""
        return op.Where(op.Not(condition, _shared=True), x, y)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The other choice first."""
        return rw.op("Where", m.condition, m.y, m.x)
