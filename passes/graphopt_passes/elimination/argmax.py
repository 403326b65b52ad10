"""The position of the largest element, found without the function before."""

from __future__ import annotations

from typing import ClassVar

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.rewrite import Numerics, OpRule, Outcome, Rewriter

_SATURATING = ("Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Relu")


class EliminateNopMonotoneArgmax(OpRule):
    """Take `ArgMax` of the input of a `Softmax` or `LogSoftmax` over the same axis.

    Rounding may make the two largest results equal where the inputs differ, and then the first of them wins; the
    rewrite finds the truly largest. That is better but not the same, hence the level `fast`. Functions that overflow,
    underflow or have no value for some inputs stay.
    """

    name = "eliminate_nop_monotone_argmax"
    ops = ("ArgMax",)
    numerics = Numerics.FAST
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_monotone_argmax",
        "onnxsim": "eliminate_nop_monotone_argmax",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the axes; no pattern, for it has to count them from the front and stays where it is."""
        value = node.operand(0)
        first = value.source("Softmax", "LogSoftmax", *_SATURATING, reader=node)
        if first.op in _SATURATING:
            raise Decline("{} makes different elements equal", first.op)
        along, over = value.axis(node.attr("axis", 0)), value.axis(first.attr("axis", 1))
        # Before opset 13 all axes from the given one on are normalized together.
        if over != along and (over > along or node.graph.opset() >= 13):
            raise Decline("{} goes over axis {}, ArgMax over {}", first.op, over, along)
        return rw.set_input(node, 0, first.operand(0))
