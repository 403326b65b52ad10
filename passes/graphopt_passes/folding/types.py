"""Operators whose result depends on a type that is known."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class FoldCastLike(OpRule):
    """Turn `CastLike` into `Cast`, where the element type it asks for is known.

    The value that states the type is not read any more. Attributes (`saturate`, `round_mode`) are kept.
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
        return rw.replace(node, [rw.op("Cast", x, to=int(like.dtype), **node.attrs)])
