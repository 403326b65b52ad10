"""Consecutive lower and upper bounds."""

from __future__ import annotations

from typing import ClassVar

from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators import Bounds
from graphopt.rewrite import Numerics, PatternRule, Rewriter, Value


class JoinBounds(PatternRule):
    """Fuse an operator that bounds a value with another one before it, as their view composes them.

    Attributes:
        before: for each operator, those that may come before it.
    """

    numerics = Numerics.ROUNDING
    before: ClassVar[dict[str, tuple[str, ...]]]

    def pattern(self, op: OpBuilder) -> Pattern:
        """The bound of `Min` and `Max` may stand on either side."""
        pairs = []
        for last, first in self.before.items():
            inner = op.AnyOf(*first)(Var(), ..., _bind="inner")
            pairs.append(op.AnyOf(last)(inner, ...))
            if last in ("Min", "Max"):
                pairs.append(op.AnyOf(last)(Const(silent=True), inner, ...))
        return Either(*pairs)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        outer = Bounds.of(m.root)
        return Bounds.of(m.inner).then(outer).write(rw)


class FuseConsecutiveClips(JoinBounds):
    """Fuse two `Clip` with constant bounds into one."""

    opsets = "6-"
    before = {"Clip": ("Clip",)}
    peers = {"onnxscript": "FuseSuccessiveClip"}


class FuseReluIntoClip(JoinBounds):
    """Fuse `Relu` and `Clip` with constant bounds, in either order, into one `Clip`.

    A `Min` or `Max` with one constant number counts as a `Clip`.
    """

    opsets = "6-"
    before = {
        "Clip": ("Relu", "Min", "Max"),
        "Relu": ("Clip", "Min", "Max"),
        "Min": ("Relu", "Clip"),
        "Max": ("Relu", "Clip"),
    }
    peers = {"onnxruntime": "FuseReluClip", "onnxscript": ("FuseSuccessiveReluClip", "FuseSuccessiveClipRelu")}


class FuseMinMaxIntoClip(JoinBounds):
    """Fuse `Min` and `Max` with one constant number each, in either order, into one `Clip`."""

    opsets = "8-"
    before = {"Max": ("Max", "Min"), "Min": ("Max", "Min")}
    peers = {"onnxscript": ("FuseMinMaxToClip", "FuseMaxMinToClip")}
