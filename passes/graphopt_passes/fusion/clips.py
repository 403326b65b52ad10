"""Lower and upper bounds that follow each other."""

from __future__ import annotations

from typing import ClassVar

from graphopt.operators import Bounds
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter


class JoinBounds(OpRule):
    """Join an operator that keeps a value within bounds and one before it into one, as their view says.

    Attributes:
        before: for each operator, those that may come before it.
    """

    numerics = Numerics.ROUNDING
    before: ClassVar[dict[str, tuple[str, ...]]]

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        before = self.before[node.op]
        if not any(value.made_by(*before) for value in node.operands):
            raise Decline
        outer = Bounds.of(node)
        inner = Bounds.of(outer.x.sole_source(*before, reader=node))
        return rw.replace(node, [inner.then(outer).write(rw)])


class FuseConsecutiveClips(JoinBounds):
    """Join two `Clip` with constant bounds into one."""

    ops = ("Clip",)
    opsets = "6-"
    before: ClassVar[dict[str, tuple[str, ...]]] = {"Clip": ("Clip",)}
    peers = {"onnxscript": "FuseSuccessiveClip"}


class FuseReluIntoClip(JoinBounds):
    """Join `Relu` and `Clip` with constant bounds, in either order, into one `Clip`.

    A `Min` or `Max` with one constant number counts as a `Clip`.
    """

    ops = ("Clip", "Relu", "Min", "Max")
    opsets = "6-"
    before: ClassVar[dict[str, tuple[str, ...]]] = {
        "Clip": ("Relu", "Min", "Max"),
        "Relu": ("Clip", "Min", "Max"),
        "Min": ("Relu", "Clip"),
        "Max": ("Relu", "Clip"),
    }
    peers = {"onnxruntime": "FuseReluClip", "onnxscript": ("FuseSuccessiveReluClip", "FuseSuccessiveClipRelu")}


class FuseMinMaxIntoClip(JoinBounds):
    """Join `Min` and `Max` with one constant number each, in either order, into one `Clip`."""

    ops = ("Min", "Max")
    opsets = "8-"
    before: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(ops, ops)
    peers = {"onnxscript": ("FuseMinMaxToClip", "FuseMaxMinToClip")}
