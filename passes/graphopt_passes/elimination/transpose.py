"""Transposes that move nothing."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class EliminateNopTranspose(OpRule):
    """Remove `Transpose` whose permutation leaves every element where it is.

    That is the identity permutation, and one that only moves axes of size 1 among axes of size 1.
    """

    name = "eliminate_nop_transpose"
    ops = ("Transpose",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_transpose",
        "onnxsim": "eliminate_nop_transpose",
        "onnxscript": "TransposeIdentity",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the permutation, which reverses the axes when left out."""
        x = node.inputs[0]
        if x is None:
            return None
        perm = node.attr("perm")
        if perm is None:
            if x.rank is None:
                return Mismatch("the rank of {} is not known", x.name)
            perm = tuple(reversed(range(x.rank)))
        moved = [(at, axis) for at, axis in enumerate(perm) if at != axis]
        shape = x.shape
        if moved and shape is None:
            return None
        if all(shape is not None and shape[at] == 1 and shape[axis] == 1 for at, axis in moved):
            return rw.replace(node, [x])
        if all(at == axis for at, axis in zip(_long(perm, shape), sorted(_long(perm, shape)), strict=True)):
            return Mismatch("it moves an axis of size 1 past others, which is a Reshape")
        return None


def _long(perm: tuple[int, ...], shape: tuple[int | str | None, ...] | None) -> list[int]:
    """The axes that may be longer than 1, in the order of the result."""
    return [axis for axis in perm if shape is None or shape[axis] != 1]
