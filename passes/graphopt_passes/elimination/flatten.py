"""Flattening of what is flat."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class EliminateNopFlatten(OpRule):
    """Remove `Flatten` of a matrix that it leaves as it is.

    That is a matrix cut between its axes, or cut before an axis of size 1 or behind one.
    """

    name = "eliminate_nop_flatten"
    ops = ("Flatten",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_flatten",
        "onnxsim": "eliminate_nop_flatten",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the rank, then at where it cuts."""
        x = node.inputs[0]
        if x is None:
            return None
        if x.shape is None:
            return Mismatch("the rank of {} is not known", x.name)
        if len(x.shape) != 2:
            return None
        axis = node.attr("axis", 1)
        axis += 2 if axis < 0 else 0
        if axis == 1 or (axis == 0 and x.shape[0] == 1) or (axis == 2 and x.shape[1] == 1):
            return rw.replace(node, [x])
        return Mismatch("it makes {} of {} one axis", "rows" if axis == 0 else "columns", x.name)
