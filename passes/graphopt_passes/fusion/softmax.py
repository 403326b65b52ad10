"""Written-out `Softmax` and `LogSoftmax`."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.match import FLOAT32, Attr, Match, OpBuilder, Pattern
from graphopt.operators.axes import from_front
from graphopt.operators.softmax import Softmax
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value


class FuseSoftmax(PatternRule):
    """Recognize `Softmax`: `e / sum(e)` with `e = exp(x - max(x))`.

    Along the last axis; before opset 13 along the last ones. Along others, ONNX Runtime transposes to normalize, and
    the written-out form is faster. For float and double, which runtimes have kernels for.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """The maximum may have other readers."""
        maximum = op.ReduceMax(x, axes=Attr("axes"), keepdims=1, _shared=True)
        exponents = op.Exp(op.Sub(x, maximum))
        return op.Div(exponents, op.ReduceSum(exponents, axes=Attr("sum_axes"), keepdims=1))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return Softmax("Softmax", m.x, _last_axes(m)).write(rw)


class FuseLogSoftmax(PatternRule):
    """Recognize `LogSoftmax`: `d - log(sum(exp(d)))` with `d = x - max(x)`.

    JAX writes it like that. Along the last axis, before opset 13 the last ones, for float32. Beside a NaN or an
    infinity, the kernel for double gives numbers for the other elements.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The maximum may have other readers."""
        shifted = op.Sub(x, op.ReduceMax(x, axes=Attr("axes"), keepdims=1, _shared=True))
        return op.Sub(shifted, op.Log(op.ReduceSum(op.Exp(shifted), axes=Attr("sum_axes"), keepdims=1)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return Softmax("LogSoftmax", m.x, _last_axes(m)).write(rw)


def _last_axes(m: Match) -> tuple[int, ...]:
    """The axes of the maximum and the sum, which must be the last ones and not empty."""
    if m.x.dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        raise Decline("the element type of {} is not a float", m.x.name)
    if not m.axes or not m.sum_axes:
        raise Decline("no axes are given, which may mean all or none")
    dims = m.x.dims()
    axes, summed = (from_front(each, len(dims), m.x.name) for each in (m.axes, m.sum_axes))
    if axes != summed:
        raise Decline("maximum and sum are taken along different axes")
    if axes[-1] != len(dims) - 1:
        raise Decline("axes {} do not end at the last one, where kernels are slow", list(axes))
    if 0 in [dims[axis] for axis in axes]:
        raise Decline("a normalized axis is empty")
    return axes
