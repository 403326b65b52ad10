"""Conditions of selections."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by


class RewriteWhere(OpRule):
    """Swap the choices of a `Where` instead of negating its condition.

    The `Not` stays for its other readers, where it has any. It counts as rounding, since ONNX Runtime's `Where` loses
    the sign of zero in one of its two choices.
    """

    name = "rewrite_where"
    ops = ("Where",)
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "rewrite_where", "onnxruntime": "NotWhereFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read what is negated."""
        condition = node.input(0)
        negation = made_by(condition, "Not")
        if condition is None or negation is None:
            return None
        if negation.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", condition.name)
        _, x, y = node.inputs
        return rw.replace(node, [rw.op("Where", negation.inputs[0], y, x)])
