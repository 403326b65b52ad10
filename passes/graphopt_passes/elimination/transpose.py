"""Transposes that move nothing in memory."""

from __future__ import annotations

from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter


class ConvertTransposeToReshape(OpRule):
    """Turn a `Transpose` that only moves axes of size 1 past others into a `Reshape`, which copies nothing.

    The new shape must be known: sizes that are not fixed stay at their axis, or only one is not fixed.
    """

    ops = ("Transpose",)
    opsets = "9-"  # below, an old model cannot hold a new constant of integers
    peers = {"onnxslim": "EliminationTransposeAsReshape"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, y = node.operand(0), node.result
        if x.shape is None:
            raise Decline
        transpose = Transpose.of(node)
        if not transpose.keeps_order or transpose.moves_nothing:
            raise Decline
        if y.users and not y.output_count and all(user.op == "Gemm" for user in y.users):
            raise Decline("{} is only read by Gemm, which can transpose it", y.name)
        return rw.replace(node, [Reshape(x, _target(transpose)).write(rw)])


def _target(transpose: Transpose) -> tuple[int, ...]:
    """What to ask a `Reshape` for."""
    shape = transpose.x.dims()
    dynamic = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int)]
    target: list[int] = []
    for at, axis in enumerate(transpose.perm):
        dim = shape[axis]
        target.append(dim if isinstance(dim, int) else 0 if at == axis else -1)
    if 0 in shape or (-1 in target and len(dynamic) > 1):
        raise Decline("the sizes of {} are not known well enough", transpose.x.name)
    return tuple(target)
