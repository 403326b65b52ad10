"""Transposes that meet."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, pass_on


class FuseConsecutiveTransposes(OpRule):
    """Join two `Transpose` into one, or into none where they cancel.

    With permutations `p` and then `q` the result has the permutation `p[q[i]]`; a missing `perm` reverses the axes.
    The first one stays for its other readers, where it has any.
    """

    name = "fuse_consecutive_transposes"
    ops = ("Transpose",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_consecutive_transposes",
        "onnxruntime": "TransposeOptimizer",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        return join_transposes(node, rw)


def join_transposes(node: Node, rw: Rewriter) -> Outcome:
    """Make one of a `Transpose` and the one it reads, or none where they cancel.

    Args:
        node: the second.
        rw: the gate.
    """
    value = node.inputs[0]
    first = made_by(value, "Transpose")
    if value is None or first is None:
        return None
    if first.graph is not node.graph:
        return Mismatch("{} is computed in an outer graph", value.name)
    x = first.inputs[0]
    p, q = first.attr("perm"), node.attr("perm")
    rank = len(p or q or ()) or (x.rank if x is not None else None)
    if x is None or rank is None:
        return Mismatch("the rank of {} is not known", value.name)
    backwards = tuple(range(rank))[::-1]
    p, q = p or backwards, q or backwards
    joined = tuple(p[axis] for axis in q)
    if joined == tuple(range(rank)):
        return pass_on(node, x, rw)
    return rw.replace(node, [rw.op("Transpose", x, perm=joined)])
