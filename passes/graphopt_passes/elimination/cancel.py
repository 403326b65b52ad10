"""Inverse operators in a row, and idempotent operators."""

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
    """Remove `Squeeze` and `Unsqueeze` that cancel each other, or that have no effect.

    The first of a pair stays if it has other readers.
    """

    # No pattern: a single operator without effect is removed as well.
    ops = ("Squeeze", "Unsqueeze")
    peers = {"onnxsim": "fuse_consecutive_squeeze_unsqueeze"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the axes of both, counted in the shape of higher rank."""
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
                raise Decline("axes {} are removed, but axes {} are inserted", gone, come)
        return rw.pass_on(node, x)


_ROUNDING = ("Ceil", "Floor", "Round")

LEAVES: dict[str, tuple[str, ...]] = {
    "Abs": ("Abs",), "Ceil": _ROUNDING, "Floor": _ROUNDING, "Relu": ("Relu",), "Round": _ROUNDING, "Sign": ("Sign",),
}  # fmt: skip
"""Each operator with the operators whose results it does not change."""


class EliminateConsecutiveIdempotentOps(OpRule):
    """Remove the second of two idempotent operators in a row, and the first of two `Reshape`.

    `Abs`, `Ceil`, `Floor`, `Relu`, `Round` and `Sign` do not change their own results; the three rounding operators
    do not change each other's either. A `Reshape` of a `Reshape` reads the input of the first: a 0 in its shape, which
    copies a dimension of the first result, is replaced by that size, or the dimension must be equal in both.
    """

    # No pattern: a table lists the operators that may precede, and for Reshape the shape decides.
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
