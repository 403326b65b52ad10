"""Copies that broadcasting makes unnecessary."""

from __future__ import annotations

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value


class EliminateExpandBeforeBroadcast(OpRule):
    """Let an operator that broadcasts read what an `Expand` repeats, when another operand has the shape of the result.

    An `Expand` that stays for other readers is left to all: to broadcast takes longer than to read what is there.
    """

    # No pattern: any of the operands may be repeated.
    ops = (
        "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul",
        "Or", "Pow", "Sub", "Sum", "Where", "Xor",
    )  # fmt: skip
    sources = ("Expand",)
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        result, declined = node.result, Decline()
        for index, value in enumerate(node.operands):
            try:
                x = value.source("Expand", reader=node).operand(0)
                if not _has_other(node, value):
                    raise Decline("no other operand is known to have the shape of {}", result.name)
                if value.output_count or not all(
                    user.op in self.ops and _has_other(user, value) for user in value.users
                ):
                    raise Decline("{} is there for other readers", value.name)
                return rw.set_input(node, index, x)
            except Decline as reason:
                declined = reason if reason.args else declined
        raise declined


def _has_other(node: Node, value: Value) -> bool:
    """Whether another operand has the shape of the result."""
    return any(other is not value and other.has_shape_of(node.result) for other in node.operands)
