"""Operators that enforce bounds that already hold."""

from __future__ import annotations

from graphopt.ir import FLOAT_TYPES
from graphopt.operators import Bounds
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.reach import ANY, BOUNDING, CURVES, JOINING, OF_FIRST, reach


class EliminateNopClip(OpRule):
    """Remove `Relu`, `Clip`, `Abs`, and `Min` or `Max` with a constant, where the operand is within the bounds.

    For floats, after a `Sigmoid`, `Softmax` or `Exp`, a square, another bound, or operators that move, join, add,
    multiply or average numbers within the bounds.
    """

    # No pattern: the range of the operand depends on all operators before it.
    ops = ("Abs", "Clip", "Max", "Min", "Relu")
    sources = tuple(sorted({*BOUNDING, *CURVES, *JOINING, *OF_FIRST}))
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        bounds = Bounds(node.operand(0), low=0.0) if node.op == "Abs" else Bounds.of(node)
        low, high = reach(bounds.x)
        if bounds.x.dtype not in FLOAT_TYPES or (low, high) == ANY:
            raise Decline
        if low < bounds.low or high > bounds.high:
            raise Decline("{} may range from {} to {}, beyond the bounds", bounds.x.name, low or 0.0, high)
        return rw.replace(node, [bounds.x])
