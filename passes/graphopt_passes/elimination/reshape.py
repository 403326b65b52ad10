"""Reshapes to the shape that the input has already."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Dim, Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list, same_shape


class EliminateNopReshape(OpRule):
    """Remove `Reshape` whose result provably has the shape of its input.

    The new shape may say so itself (`0` copies a dimension, one `-1` takes what is left), or the shapes of both
    values are known, symbols included. A fixed size asked of an unknown dimension is a check at run time and stays.
    """

    name = "eliminate_nop_reshape"
    ops = ("Reshape",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_reshape",
        "onnxsim": "eliminate_nop_reshape",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the shapes before and after."""
        x, y = node.inputs[0], node.outputs[0]
        if x is None or y is None:
            return None
        if same_shape(x, y):
            return rw.replace(node, [x])
        wanted = int_list(node, "shape", 1, 5)
        if wanted is None or isinstance(wanted, Mismatch):
            return wanted
        if x.shape is None:
            return Mismatch("the rank of {} is not known", x.name)
        if len(wanted) != len(x.shape):
            return None
        problem = _differs(x.name, x.shape, wanted, zero_copies=not node.attr("allowzero", 0))
        return rw.replace(node, [x]) if problem is None else problem


def _differs(name: str, shape: tuple[Dim, ...], wanted: tuple[int, ...], *, zero_copies: bool) -> Mismatch | None:
    """Why a shape asked for, of equal rank, may not be the one at hand."""
    for axis, (dim, size) in enumerate(zip(shape, wanted, strict=True)):
        if size == -1 or (size == 0 and zero_copies) or size == dim:
            continue
        if isinstance(dim, int):
            return Mismatch("dimension {} of {} is {}, not {}", axis, name, dim, size)
        return Mismatch("dimension {} of {} is {}, which need not be {}", axis, name, dim or "unknown", size)
    return None
