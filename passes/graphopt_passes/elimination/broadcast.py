"""Copies that broadcasting makes unnecessary."""

from __future__ import annotations

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value


class EliminateExpandBeforeBroadcast(OpRule):
    """Let an operator that broadcasts read what an `Expand` repeats, when another operand has the shape of the result.

    An `Expand` that stays for other readers is left to all: to broadcast takes longer than to read what is there.
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
                if not any(other is not value and other.has_shape_of(result) for other in operands):
                    raise Decline("no other operand is known to have the shape of {}", result.name)
                if value.output_count or not all(self._reads_so(user, value) for user in value.users):
                    raise Decline("{} is there for other readers", value.name)
                return rw.set_input(node, index, x)
            except Decline as reason:
                declined = reason if reason.args else declined
        raise declined

    def _reads_so(self, user: Node, value: Value) -> bool:
        """Whether a reader could do without the copy as well."""
        return user.op in self.ops and any(
            other is not None and other is not value and other.has_shape_of(user.result) for other in user.inputs
        )
