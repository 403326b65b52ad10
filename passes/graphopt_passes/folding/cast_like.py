"""`CastLike` to a known type."""

from __future__ import annotations

from graphopt.ir import FLOAT8_TYPES
from graphopt.rewrite import Node, OpRule, Outcome, Rewriter

_FLOAT8E8M0 = 24
"""Not defined in every supported version of onnx."""

_MEANT_FOR = {"saturate": FLOAT8_TYPES, "round_mode": (_FLOAT8E8M0,)}
"""The element types to which an attribute of `Cast` applies."""


class FoldCastLike(OpRule):
    """Replace `CastLike` with `Cast` where its element type is known.

    The second operand is then not read any more. `saturate` and `round_mode` are kept for the types to which they
    apply: runtimes reject a `Cast` that has them for another type.
    """

    ops = ("CastLike",)
    opsets = "15-"
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        to = int(node.operand(1).element_type())
        kept = {name: value for name, value in node.attrs.items() if to in _MEANT_FOR.get(name, ())}
        return rw.replace(node, [rw.op("Cast", node.operand(0), to=to, **kept)])
