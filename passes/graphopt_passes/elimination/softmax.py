"""`Softmax` over a single element, or before `ArgMax`."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node
from graphopt.ir.numpy_types import numpy_type
from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Softmax
from graphopt.operators.linear import PLAIN_FLOATS
from graphopt.rewrite import Decline, Fired, Numerics, OpRule, Outcome, PatternRule, Rewriter


class EliminateNopSoftmax(OpRule):
    """Replace a `Softmax` over an axis of size 1 with ones, and a `LogSoftmax` with zeros.

    For infinite and NaN elements the original gives NaN; hence the level `fast`.
    """

    ops = ("Softmax", "LogSoftmax")
    numerics = Numerics.FAST
    opsets = "9-"
    peers = {"onnxsim": "eliminate_nop_softmax"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        if any(x.dims()[axis] != 1 for axis in Softmax.of(node).axes):
            raise Decline
        if x.dtype not in PLAIN_FLOATS:
            raise Decline("the element type of {} is not supported", x.name)
        value = np.array([node.op == "Softmax"], numpy_type(x.dtype))
        return rw.replace(node, [rw.op("ConstantOfShape", rw.op("Shape", x), value=value)])


_SATURATING = ("Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Relu")


class EliminateNopMonotoneArgmax(PatternRule):
    """Remove a `Softmax` or `LogSoftmax` before an `ArgMax` over the same axis.

    Rounding may make the two largest results equal although the inputs differ, so that the first is selected; the
    rewrite selects the truly largest. That is better but not the same; hence the level `fast`. Functions that overflow,
    underflow or are undefined for some inputs stay.
    """

    numerics = Numerics.FAST
    peers = {"onnxoptimizer": "eliminate_nop_monotone_argmax"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.ArgMax(op.AnyOf("Softmax", "LogSoftmax", *_SATURATING)(x, ..., _shared=True, _bind="first"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        if m.first.op in _SATURATING:
            raise Decline("{} may map different elements to equal ones", m.first.op)
        axis, axes = m.first.result.axis(m.root.attr("axis", 0)), Softmax.of(m.first).axes
        if axis not in axes:
            raise Decline("{} is along axis {}, ArgMax along axis {}", m.first.op, axes[0], axis)
        return rw.set_input(m.root, 0, m.x)
