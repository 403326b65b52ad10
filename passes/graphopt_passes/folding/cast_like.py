"""`CastLike` to a type that is known."""

from __future__ import annotations

from graphopt.ir import FLOAT8_TYPES
from graphopt.rewrite import Node, OpRule, Outcome, Rewriter

_FLOAT8E8M0 = 24
"""Not every onnx that is supported names it."""

_MEANT_FOR = {"saturate": FLOAT8_TYPES, "round_mode": (_FLOAT8E8M0,)}
"""The element types for which an attribute of `Cast` means something."""


class FoldCastLike(OpRule):
    """Turn `CastLike` into `Cast`, where the element type it asks for is known.

    The value that states the type is not read any more. Attributes (`saturate`, `round_mode`) are kept where they mean
    something: runtimes refuse a `Cast` that has them for another type.
    """

    ops = ("CastLike",)
    opsets = "15-"
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        to = int(node.operand(1).element_type())
        kept = {name: value for name, value in node.attrs.items() if to in _MEANT_FOR.get(name, ())}
        return rw.replace(node, [rw.op("Cast", node.operand(0), to=to, **kept)])
