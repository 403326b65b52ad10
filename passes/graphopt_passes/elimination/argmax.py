"""The position of the largest element, found without the function before."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter

_SATURATING = frozenset({"Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Relu"})


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
        """Look one step up and compare the axes."""
        value = node.inputs[0]
        first = value.producer if value is not None else None
        if value is None or first is None:
            return None
        if first.op in _SATURATING:
            return Mismatch("{} makes different elements equal", first.op)
        if first.op not in ("Softmax", "LogSoftmax"):
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        x = first.inputs[0]
        if value.rank is None:
            return Mismatch("the rank of {} is not known", value.name)
        rank = value.rank or 1
        along, over = node.attr("axis", 0) % rank, first.attr("axis", 1) % rank
        # Before opset 13 all axes from the given one on are normalized together.
        same = over <= along if node.graph.opset() < 13 else over == along
        if not same:
            return Mismatch("{} goes over axis {}, ArgMax over {}", first.op, over, along)
        return rw.set_input(node, 0, x)
