"""Operators whose result depends on a type that is known."""

from __future__ import annotations

from typing import ClassVar

from onnx import TensorProto

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter

_FLOAT8 = (
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
)  # fmt: skip

_FLOAT8E8M0 = 24
"""Not every onnx that is supported names it."""

_MEANT_FOR = {"saturate": _FLOAT8, "round_mode": (_FLOAT8E8M0,)}
"""The element types for which an attribute of `Cast` means something."""


class FoldCastLike(OpRule):
    """Turn `CastLike` into `Cast`, where the element type it asks for is known.

    The value that states the type is not read any more. Attributes (`saturate`, `round_mode`) are kept where they mean
    something: runtimes refuse a `Cast` that has them for another type.
    """

    name = "fold_cast_like"
    ops = ("CastLike",)
    opsets = "15-"
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Write the type down."""
        x, like = node.input(0), node.input(1)
        if x is None or like is None:
            return None
        if like.dtype is None:
            return Mismatch("the element type of {} is not known", like.name)
        kept = {name: value for name, value in node.attrs.items() if int(like.dtype) in _MEANT_FOR.get(name, ())}
        return rw.replace(node, [rw.op("Cast", x, to=int(like.dtype), **kept)])
