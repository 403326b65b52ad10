"""Casts to the type that the input has already."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter


class EliminateNopCast(OpRule):
    """Remove `Cast` and `CastLike` to the element type that their input has."""

    ops = ("Cast", "CastLike")
    peers = {"onnxoptimizer": "eliminate_nop_cast", "onnxruntime": "CastElimination", "onnxscript": "CastIdentity"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        target = node.operand(1).dtype if node.op == "CastLike" else node.attr("to")
        if isinstance(target, str):  # opset 1 names the type
            target = dict(TensorProto.DataType.items()).get(target.upper())
        if x.dtype is None:
            raise Decline("the element type of {} is not known", x.name)
        if x.dtype != target:
            raise Decline
        return rw.replace(node, [x])
