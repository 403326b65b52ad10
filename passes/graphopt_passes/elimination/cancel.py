"""Operators that undo each other, or leave their own results as they are."""

from __future__ import annotations

from graphopt.match import Either, Match, OpBuilder, Pattern
from graphopt.operators import Reshape, Squeeze, Unsqueeze
from graphopt.operators.axes import refuse_empty_axes
from graphopt.rewrite import Decline, Fired, Node, OpRule, Outcome, PatternRule, Rewriter


class EliminateDoubleNegation(PatternRule):
    """Remove both of two `Neg`, `Not` or `BitwiseNot` in a row."""

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return Either(*(negate(negate(x, _shared=True)) for negate in (op.Neg, op.Not, op.BitwiseNot)))

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        return rw.pass_on(m.root, m.x)


class EliminateSqueezeUnsqueeze(OpRule):
    """Remove `Squeeze` and `Unsqueeze` that undo each other, or that have nothing to do.

    The first of a pair stays for its other readers, where it has any.
    """

    # No pattern: a single one that has nothing to do goes as well.
    ops = ("Squeeze", "Unsqueeze")
    peers = {"onnxsim": "fuse_consecutive_squeeze_unsqueeze"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the axes of both, counted in the longer shape."""
        value, y = node.operand(0), node.result
        refuse_empty_axes(node)
        if value.has_shape_of(y):
            return rw.replace(node, [value])
        first = value.source("Squeeze" if node.op == "Unsqueeze" else "Unsqueeze", reader=node)
        refuse_empty_axes(first)
        x = first.operand(0)
        if not x.has_shape_of(y):
            squeeze, unsqueeze = (first, node) if first.op == "Squeeze" else (node, first)
            gone, come = Squeeze.of(squeeze).axes, Unsqueeze.of(unsqueeze).axes
            if gone != come:
                raise Decline("axes {} go, {} come", gone, come)
        return rw.pass_on(node, x)


_ROUNDING = ("Ceil", "Floor", "Round")

LEAVES: dict[str, tuple[str, ...]] = {
    "Abs": ("Abs",), "Ceil": _ROUNDING, "Floor": _ROUNDING, "Relu": ("Relu",), "Round": _ROUNDING, "Sign": ("Sign",),
}  # fmt: skip
"""Each operator with those whose results it leaves as they are."""


class EliminateConsecutiveIdempotentOps(OpRule):
    """Remove the second of two equal operators where it changes nothing, and the first of two `Reshape`.

    `Abs`, `Ceil`, `Floor`, `Relu`, `Round` and `Sign` leave their own results as they are; so do the three rounding
    operators among each other. A `Reshape` of a `Reshape` reads the input of the first: where its shape has a 0,
    which copies a dimension of the first result, that dimension is filled in or must be the same in both.
    """

    # No pattern: what is before is in a table, and for a Reshape the shape decides.
    ops = (*LEAVES, "Reshape")
    sources = (*LEAVES, "Reshape")
    peers = {
        "onnxoptimizer": "eliminate_consecutive_idempotent_ops",
        "onnxslim": "EliminationReshape",
        "onnxscript": ("ReshapeReshape", "FuseSuccessiveRelu"),
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        if node.op != "Reshape":
            if not x.made_by(*LEAVES[node.op]):
                raise Decline
            return rw.replace(node, [x])
        first = x.source("Reshape", reader=node)
        reshape = Reshape.of(node)
        joined = reshape.reading(first.operand(0))
        if joined.target == reshape.target:
            return rw.set_input(node, 0, joined.x)
        return rw.replace(node, [joined.write(rw)])
