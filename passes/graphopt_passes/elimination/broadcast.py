"""Copies that broadcasting makes unnecessary."""

from __future__ import annotations

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, same_shape


class EliminateExpandBeforeBroadcast(OpRule):
    """Let an operator that broadcasts read what an `Expand` repeats, when another operand has the shape of the result.

    The `Expand` stays for its other readers, where it has any.
    """

    name = "eliminate_expand_before_broadcast"
    ops = (
        "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul",
        "Or", "Pow", "Sub", "Sum", "Where", "Xor",
    )  # fmt: skip
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for an operand that keeps the shape of the result."""
        result = node.outputs[0]
        if result is None:
            return None
        outcome: Outcome = None
        for index, value in enumerate(node.inputs):
            expand = made_by(value, "Expand")
            if value is None or expand is None:
                continue
            x = expand.input(0)
            if expand.graph is not node.graph:
                outcome = Mismatch("{} is computed in an outer graph", value.name)
            elif x is not None and any(_keeps(other, value, result) for other in node.inputs):
                return rw.set_input(node, index, x)
            else:
                outcome = Mismatch("no other operand is known to have the shape of {}", result.name)
        return outcome


def _keeps(other: Value | None, value: Value, result: Value) -> bool:
    return other is not None and other is not value and same_shape(other, result)
