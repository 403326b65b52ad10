"""Conditions of selections."""

from __future__ import annotations

from typing import Any, ClassVar

from graphopt.ir import Value
from graphopt.match import Match, Pattern
from graphopt.rewrite import Numerics, PatternRule, Rewriter


class RewriteWhere(PatternRule):
    """Swap the choices of a `Where` instead of negating its condition.

    The `Not` stays for its other readers, where it has any. It counts as rounding, since ONNX Runtime's `Where` loses
    the sign of zero in one of its two choices.
    """

    name = "rewrite_where"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "rewrite_where", "onnxruntime": "NotWhereFusion"}

    def pattern(self, op: Any, condition: Pattern, x: Pattern, y: Pattern) -> Pattern:
        """A negated condition."""
        where: Pattern = op.Where(op.Not(condition, _shared=True), x, y)
        return where

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The other choice first."""
        where: Value = rw.op("Where", m.condition, m.y, m.x)
        return where
