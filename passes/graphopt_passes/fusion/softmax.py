"""`Softmax` and `LogSoftmax` that are written out."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.match import FLOAT32, Attr, Match, OpBuilder, Pattern
from graphopt.operators.axes import from_front
from graphopt.operators.softmax import Softmax
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value


class FuseSoftmax(PatternRule):
    """Recognize `Softmax`: exponents of the differences to the maximum, divided by their sum.

    Along the last axis; before opset 13 along the last ones. Along others, ONNX Runtime transposes to normalize, and
    what is written out is faster. For float and double, which runtimes have kernels for.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """`e / sum(e)` of `e = exp(x - max(x))`; the maximum may have other readers."""
        maximum = op.ReduceMax(x, axes=Attr("axes"), keepdims=1, _shared=True)
        exponents = op.Exp(op.Sub(x, maximum))
        return op.Div(exponents, op.ReduceSum(exponents, axes=Attr("sum_axes"), keepdims=1))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return Softmax("Softmax", m.x, _last_axes(m)).write(rw)


class FuseLogSoftmax(PatternRule):
    """Recognize `LogSoftmax`: the differences to the maximum, minus the logarithm of the sum of their exponents.

    JAX writes it like that. Along the last axis, before opset 13 the last ones, for float32. The kernel for double
    gives numbers beside a NaN, and beside an infinity.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """`d - log(sum(exp(d)))` of `d = x - max(x)`; the maximum may have other readers."""
        shifted = op.Sub(x, op.ReduceMax(x, axes=Attr("axes"), keepdims=1, _shared=True))
        return op.Sub(shifted, op.Log(op.ReduceSum(op.Exp(shifted), axes=Attr("sum_axes"), keepdims=1)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return Softmax("LogSoftmax", m.x, _last_axes(m)).write(rw)


def _last_axes(m: Match) -> tuple[int, ...]:
    """The axes of the maximum and the sum, which must be the last ones, with numbers along them."""
    if m.x.dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        raise Decline("the element type of {} is not one of floats", m.x.name)
    if not m.axes or not m.sum_axes:
        raise Decline("no axes are stated, which means all of them, or none")
    dims = m.x.dims()
    axes, summed = (from_front(each, len(dims), m.x.name) for each in (m.axes, m.sum_axes))
    if axes != summed:
        raise Decline("maximum and sum are taken along different axes")
    if axes[-1] != len(dims) - 1:
        raise Decline("axes {} do not end at the last one, and kernels along others are slow", list(axes))
    if 0 in [dims[axis] for axis in axes]:
        raise Decline("the normalized axes are empty")
    return axes
