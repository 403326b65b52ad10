"""Opt-in passes of onnxoptimizer that bring operands into a fixed order or operators into a plainer form."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class AdjustAdd(OpRule):
    """Put the constant operand of an `Add` second.

    Some runtimes only recognize a bias there. Not part of any level; runs when it is named.
    """

    name = "adjust_add"
    ops = ("Add",)
    default = False
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "adjust_add"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Swap the operands."""
        left, right = node.input(0), node.input(1)
        if left is None or right is None or not left.is_const or right.is_const:
            return None
        if node.graph.opset() < 7:
            # The second operand was broadcast to the first, never the other way round.
            return Mismatch("before opset 7 the operands of Add are not alike")
        return rw.set_inputs(node, {0: right, 1: left})
