"""Operators that leave their own results as they are."""

from __future__ import annotations

from graphopt.operators import Reshape
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter

_ROUNDING = ("Ceil", "Floor", "Round")

LEAVES: dict[str, tuple[str, ...]] = {
    "Abs": ("Abs",), "Ceil": _ROUNDING, "Floor": _ROUNDING, "Relu": ("Relu",), "Round": _ROUNDING, "Sign": ("Sign",),
}  # fmt: skip
"""Each operator with those whose results it leaves as they are."""


class EliminateConsecutiveIdempotentOps(OpRule):
    """Remove the second of two equal operators where it changes nothing, and the first of two `Reshape`.

    `Abs`, `Ceil`, `Floor`, `Relu`, `Round` and `Sign` leave their own results as they are; so do the three rounding
    operators among each other. A `Reshape` of a `Reshape` reads the input of the first: where its shape has a 0,
    which copies a dimension of the first result, that dimension is filled in or must be the same in both.
    """

    # No pattern: what is before is in a table, and for a Reshape the shape decides.
    ops = (*LEAVES, "Reshape")
    peers = {
        "onnxoptimizer": "eliminate_consecutive_idempotent_ops",
        "onnxslim": "EliminationReshape",
        "onnxscript": ("ReshapeReshape", "FuseSuccessiveRelu"),
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        if node.op != "Reshape":
            if not x.made_by(*LEAVES[node.op]):
                raise Decline
            return rw.replace(node, [x])
        first = x.source("Reshape", reader=node)
        reshape = Reshape.of(node)
        joined = reshape.reading(first.operand(0))
        if joined.target == reshape.target:
            return rw.set_input(node, 0, joined.x)
        return rw.replace(node, [joined.write(rw)])
