"""Transposes on their way to one that they meet."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.permuted import FORMS, REDUCTIONS, Perm, permuted

_FARTHEST = 32
"""How many operators ahead another Transpose is looked for."""


class SinkTranspose(OpRule):
    """Do a `Transpose` after the operator that reads it, where that leaves fewer of them or less to move.

    That is where it joins two or more that are alike, where the operator reduces what there is to move, and where the
    way on leads to another `Transpose`, with which it becomes one or none. Elementwise operators with all their
    operands transposed alike or constant, `Concat`, `Pad`, `Slice`, `Squeeze`, `Unsqueeze`, reductions and softmax;
    these two never along an axis whose elements lie apart where they lay together. Transposes only move towards the
    outputs.
    """

    name = "sink_transpose"
    ops = tuple(sorted(FORMS))
    opsets = "7-"
    numerics = Numerics.ROUNDING  # reductions add up in another order
    peers: ClassVar[dict[str, str]] = {
        "onnxruntime": "TransposeOptimizer",
        "onnxslim": "EliminationTransposeViewTranspose",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find the transposed inputs, then what is gained."""
        result = node.outputs[0]
        perm = next(filter(None, map(_perm, node.inputs)), None)
        if perm is None or result is None:
            return None
        sources: dict[Value, Value] = {}
        for value in node.inputs:
            if value is None or _perm(value) != perm or value.producer is None:
                continue
            if value.producer.graph is not node.graph:
                return Mismatch("{} is computed in an outer graph", value.name)
            source = value.producer.inputs[0]
            if source is not None:
                sources[value] = source
        found = permuted(node, sources, perm)
        if isinstance(found, Mismatch):
            return found
        for value in sources:
            if value.output_count or len(value.users) > 1:
                return Mismatch("{} has other readers", value.name)
        if len(sources) < 2 and node.op not in REDUCTIONS and not _meets_another(result, found.perm):
            return Mismatch("no other Transpose follows")
        plain = rw.op(node.op, *found.inputs, **found.attrs)
        moved = found.perm != tuple(range(len(found.perm)))
        return rw.replace(node, [rw.op("Transpose", plain, perm=found.perm) if moved else plain])


def _perm(value: Value | None) -> Perm | None:
    """The permutation of the `Transpose` that makes a value."""
    node = value.producer if value is not None else None
    if node is None or node.op != "Transpose":
        return None
    given: Perm | None = node.attr("perm")
    if given is not None:
        return given
    rank = node.inputs[0].rank if node.inputs[0] is not None else None
    return None if rank is None else tuple(range(rank))[::-1]


def _meets_another(value: Value, perm: Perm) -> bool:
    """Whether a `Transpose` of a value could be done later and later until there is another one, or less to move."""
    for _ in range(_FARTHEST):
        users = list(value.users)
        if value.output_count or not users or any(user.graph is not value.graph for user in users):
            return False
        if all(user.op == "Transpose" for user in users):
            return True
        node = users[0]
        if len(users) > 1 or node.op not in FORMS or node.outputs[0] is None:
            return False
        alike = {v: v for v in node.inputs if v is not None and (v is value or (_perm(v) == perm and v.one_use))}
        found = permuted(node, alike, perm)
        if isinstance(found, Mismatch):
            return False
        if len(alike) > 1 or node.op in REDUCTIONS:
            return True
        value, perm = node.outputs[0], found.perm
    return False
