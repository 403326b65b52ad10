"""Casts to the type that the input has already."""

from __future__ import annotations

from typing import ClassVar

from onnx import TensorProto

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class EliminateNopCast(OpRule):
    """Remove `Cast` and `CastLike` to the element type that their input has."""

    name = "eliminate_nop_cast"
    ops = ("Cast", "CastLike")
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_cast",
        "onnxsim": "eliminate_nop_cast",
        "onnxruntime": "CastElimination",
        "onnxscript": "CastIdentity",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the element types."""
        x = node.inputs[0]
        target = _target(node)
        if x is None or target is None:
            return None
        if x.dtype is None:
            return Mismatch("the element type of {} is not known", x.name)
        return rw.replace(node, [x]) if x.dtype == target else None


def _target(node: Node) -> int | None:
    if node.op == "CastLike":
        like = node.input(1)
        return like.dtype if like is not None else None
    to = node.attr("to")
    if isinstance(to, str):  # opset 1 names the type
        return dict(TensorProto.DataType.items()).get(to.upper())
    return to if isinstance(to, int) else None
