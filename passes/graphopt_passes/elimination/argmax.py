"""The position of the largest element, found without the function before."""

from __future__ import annotations

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Softmax
from graphopt.rewrite import Decline, Fired, Numerics, PatternRule, Rewriter

_SATURATING = ("Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Relu")


class EliminateNopMonotoneArgmax(PatternRule):
    """Take `ArgMax` of the input of a `Softmax` or `LogSoftmax` over the same axis.

    Rounding may make the two largest results equal where the inputs differ, and then the first of them wins; the
    rewrite finds the truly largest. That is better but not the same, hence the level `fast`. Functions that overflow,
    underflow or have no value for some inputs stay.
    """

    numerics = Numerics.FAST
    peers = {"onnxoptimizer": "eliminate_nop_monotone_argmax"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """The function before stays for its other readers, where it has any."""
        return op.ArgMax(op.AnyOf("Softmax", "LogSoftmax", *_SATURATING)(x, ..., _shared=True, _bind="first"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        if m.first.op in _SATURATING:
            raise Decline("{} makes different elements equal", m.first.op)
        axis, axes = m.first.result.axis(m.root.attr("axis", 0)), Softmax.of(m.first).axes
        if axis not in axes:
            raise Decline("{} goes over axis {}, ArgMax over {}", m.first.op, axes[0], axis)
        return rw.set_input(m.root, 0, m.x)
