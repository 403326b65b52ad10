"""Signs that have no effect."""

from __future__ import annotations

from graphopt.ir import FLOAT_TYPES
from graphopt.rewrite import Decline, Fired, Node, OpRule, Outcome, Rewriter

_EVEN = ("Abs", "Cos", "Cosh", "ReduceL1", "ReduceL2", "ReduceSumSquare")


class EliminateUnreadSign(OpRule):
    """Remove `Neg` or `Abs` where the sign has no effect.

    That is before `Abs`, `Cos`, `Cosh` and norms, in a square, and in both operands of a product or quotient of floats.
    It stays if it has other readers.
    """

    # No pattern: a square reads one value twice.
    ops = (*_EVEN, "Div", "Mul")
    sources = ("Abs", "Neg")
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.op in _EVEN:
            signed = node.operand(0).source("Neg", *(("Abs",) if node.op != "Abs" else ()), reader=node)
            return rw.set_input(node, 0, signed.operand(0))
        return self._both(node, rw)

    def _both(self, node: Node, rw: Rewriter) -> Fired:
        left, right = node.operands
        is_square = left is right and node.op == "Mul"
        makers = [value.source("Neg", *(("Abs",) if is_square else ()), reader=node) for value in (left, right)]
        if node.op == "Div" and left.dtype not in FLOAT_TYPES:
            raise Decline("the quotient of {} may overflow its integer type", left.name)
        return rw.replace(node, [rw.op(node.op, *(maker.operand(0) for maker in makers))])
