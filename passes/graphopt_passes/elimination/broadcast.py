"""Copies that broadcasting makes unnecessary."""

from __future__ import annotations

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter


class EliminateExpandBeforeBroadcast(OpRule):
    """Let an operator that broadcasts read what an `Expand` repeats, when another operand has the shape of the result.

    The `Expand` stays for its other readers, where it has any.
    """

    ops = (
        "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul",
        "Or", "Pow", "Sub", "Sum", "Where", "Xor",
    )  # fmt: skip
    sources = ("Expand",)
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for an operand that keeps the shape of the result."""
        result, declined = node.result, Decline()
        operands = [node.operand(index) for index in range(len(node.inputs))]
        for index, value in enumerate(operands):
            try:
                x = value.source("Expand", reader=node).operand(0)
                if any(other is not value and other.has_shape_of(result) for other in operands):
                    return rw.set_input(node, index, x)
                raise Decline("no other operand is known to have the shape of {}", result.name)
            except Decline as reason:
                declined = reason if reason.args else declined
        raise declined
