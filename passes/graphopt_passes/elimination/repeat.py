"""Repeating and broadcasting to what is there already."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import all_equal, constant_ints, same_shape


class EliminateNopExpand(OpRule):
    """Remove `Expand` to a shape that the input provably has.

    Every size asked for is 1 or the one at hand, or both shapes are known, symbols included. Expand broadcasts both
    ways, so an unknown dimension against a fixed size above 1 stays.
    """

    name = "eliminate_nop_expand"
    ops = ("Expand",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_expand",
        "onnxruntime": "ExpandElimination",
        "onnxscript": "ExpandIdentity",
        "onnxsim": "eliminate_nop_expand",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the shapes."""
        x, y, shape = node.inputs[0], node.outputs[0], node.inputs[1]
        if x is None or y is None or shape is None:
            return None
        if same_shape(x, y):
            return rw.replace(node, [x])
        wanted = constant_ints(shape)
        if isinstance(wanted, Mismatch):
            return wanted
        if x.shape is None:
            return Mismatch("the rank of {} is not known", x.name)
        if len(wanted) > len(x.shape):
            return None
        last = x.shape[len(x.shape) - len(wanted) :]
        for dim, size in zip(last, wanted, strict=True):
            if size not in (1, dim):
                return Mismatch("{} against {} in {}", size, dim or "an unknown dimension", x.name)
        return rw.replace(node, [x])


class EliminateNopTile(OpRule):
    """Remove `Tile` that repeats every axis once."""

    name = "eliminate_nop_tile"
    ops = ("Tile",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the repeats, or compare the shapes before and after."""
        x, y, repeats = node.inputs[0], node.outputs[0], node.inputs[1]
        if x is None or y is None or repeats is None:
            return None
        if same_shape(x, y) or all_equal(repeats, 1):
            return rw.replace(node, [x])
        return None if repeats.is_const else Mismatch("{} is not constant", repeats.name)
