"""Normalizations over the last axes: written-out ones, and ones of which a `Gather` takes few positions."""

from __future__ import annotations

from math import inf, prod

import numpy as np

from graphopt.match import FLOAT32, Attr, Const, Either, Match, OpBuilder, Pattern, Scalar, Var
from graphopt.operators.axes import from_front
from graphopt.operators.builder import with_operand
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value

LAYER, _ROOT_MEAN_SQUARE = 17, 23
"""The opsets that have `LayerNormalization` and `RMSNormalization`."""


def mean_of_squares(op: OpBuilder, v: Pattern) -> Pattern:
    """`mean(v * v) + epsilon`."""
    square = Either(op.Mul(v, v), op.Pow(v, 2.0))
    return op.Add(op.ReduceMean(square, axes=Attr("axes"), keepdims=1), Scalar("epsilon"))


def over_root_mean_square(op: OpBuilder, v: Pattern) -> Pattern:
    """`v / sqrt(mean(v * v) + epsilon)`, however the square, the root and the quotient are written."""
    total = mean_of_squares(op, v)
    root = Either(op.Sqrt(total), op.Pow(total, 0.5))
    inverse = Either(op.Reciprocal(root), op.Div(1.0, root), op.Pow(total, -0.5))
    return Either(op.Div(v, root), op.Mul(v, inverse))


def number_over_root_mean_square(op: OpBuilder, v: Pattern) -> Pattern:
    """`v * (factor / sqrt(mean(v * v) + epsilon))`, with a scalar factor."""
    return op.Mul(v, op.Div(Scalar("factor", silent=True), op.Sqrt(mean_of_squares(op, v))))


def centered(op: OpBuilder, x: Pattern) -> Pattern:
    """`x - mean(x)`, which may be computed once or twice."""
    return op.Sub(x, op.ReduceMean(x, axes=Attr("mean_axes"), keepdims=1))


_LEAST_EPSILON = 2.0**-48
"""The square of the rounding error of the mean of numbers that all equal 1."""


def layer_normalization(op: OpBuilder, x: Pattern) -> Pattern:
    """`c / sqrt(mean(c * c) + epsilon)` with `c = x - mean(x)`."""
    return over_root_mean_square(op, centered(op, x))


def checked_axes(m: Match) -> tuple[int, ...]:
    """The axes of the mean of squares; the mean that is subtracted, where there is one, must have the same axes.

    Declines too if `epsilon` is infinite or negative: a power of a negative infinity is 0 where a root is NaN. If it is
    0 or below the rounding error, equal numbers are normalized to one rounding error over another: 0 / 0, or 1.
    """
    if not _LEAST_EPSILON <= m.epsilon < inf:
        raise Decline("epsilon is {}, expected a positive number above rounding", m.epsilon)
    if not m.axes:
        raise Decline("no axes are given, which may mean all or none")
    axes = from_front(m.axes, len(m.x.dims()), m.x.name)
    if "mean_axes" in m.bound and from_front(m.mean_axes or (), m.x.rank, m.x.name) != axes:
        raise Decline("mean and variance are taken along different axes")
    return axes


_MOST_SCALES = 1 << 16
"""A scale of more elements is not written; a model need only declare such a size."""


def last_sizes(m: Match) -> tuple[int, ...]:
    """The sizes of the normalized axes, which must be the last ones and not empty, since runtimes refuse that."""
    axes, dims = checked_axes(m), m.x.dims()
    if axes != tuple(range(len(dims) - len(axes), len(dims))):
        raise Decline("axes {} are not the last ones", m.axes)
    sizes = [dim for dim in dims[-len(axes) :] if isinstance(dim, int) and dim > 0]
    if len(sizes) < len(axes):
        raise Decline("the normalized axes are empty, or their size is not known")
    if prod(sizes) > _MOST_SCALES:
        raise Decline("{} elements are normalized together, which needs a scale of that size", prod(sizes))
    return tuple(sizes)


def spread(constant: np.ndarray, shape: tuple[int, ...], rank: int | None) -> np.ndarray:
    """A constant operand of a normalized value of rank `rank`, broadcast to `shape`, that of the normalized axes."""
    lead = max(constant.ndim - len(shape), 0)
    own = tuple(constant.shape[lead:])
    fits = all(size in (1, full) for size, full in zip(own[::-1], shape[::-1], strict=False))
    if not fits or rank is None or constant.ndim > rank or constant.shape[:lead] != (1,) * lead:
        raise Decline("the constant of shape {} varies along other axes", constant.shape)
    return np.ascontiguousarray(np.broadcast_to(constant.reshape(own), shape))


class FuseMeanIntoSub(PatternRule):
    """Replace `x * r + (b - m * r)` with `(x - m) / d * s + b`, where `r = s / d` and `m` is the mean of `x`.

    TensorFlow writes layer normalization like that, Keras 3 as `x * r + (-m * r + b)`, either also without a bias, and
    `r` may be `1 / d`. The deviation `d` is computed from `x - m` already, and other passes recognize the result as a
    normalization.
    """

    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, bias: Pattern, x: Pattern = FLOAT32) -> Pattern:
        """The deviation is a `Sqrt` used as a divisor, as `fuse_div_mul` leaves it."""
        mean = op.ReduceMean(x, axes=Attr("mean_axes"), keepdims=1)
        root = op.Sqrt(mean_of_squares(op, op.Sub(x, mean, _shared=True, _bind="centered")), _bind="deviation")
        factor = Either(op.Div(Const("scale"), root), op.Reciprocal(root))
        scaled, negated = op.Mul(mean, factor), op.Mul(op.Neg(mean), factor)
        product, rest = op.Mul(x, factor), Either(op.Sub(bias, scaled), op.Add(negated, bias), negated)
        return Either(op.Add(product, rest), op.Sub(product, scaled))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        checked_axes(m)
        if m.scale is not None and not np.isfinite(m.scale.array()).all():
            raise Decline("the scale is not finite")
        made = rw.op("Div", m.centered.result, m.deviation.result)
        return with_operand(rw, "Add", with_operand(rw, "Mul", made, m.scale), m.bias)


class MoveScaleBehindDeviation(PatternRule):
    """Replace `v * (s / d)` and `v * s / d` with `v / d * s`, where `d` is the deviation of `v`.

    JAX writes normalizations like that, as does code like `weight * x / rms`. The number of operators stays the same,
    and other passes recognize the result as a normalization. A scalar `s` stays where the opset has no operator for
    that: `s / d` has only one number per row.
    """

    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The deviation is a `Sqrt` used as a divisor, as `fuse_div_mul` leaves it."""
        scale, root = Const("scale"), op.Sqrt(mean_of_squares(op, x), _bind="deviation")
        return Either(op.Mul(x, op.Div(scale, root, _bind="factor")), op.Div(op.Mul(x, scale), root))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        checked_axes(m)
        if m.factor is not None and m.scale.array().size == 1:
            last_sizes(m)
            if m.root.graph.opset() < (LAYER if m.x.made_by("Sub") else _ROOT_MEAN_SQUARE):
                raise Decline("a single number over the deviation is less work than a scale after the division")
        if not np.isfinite(m.scale.array()).all():
            raise Decline("the scale is not finite")
        return rw.op("Mul", rw.op("Div", m.x, m.deviation.result), m.scale)


class FuseLayerNormalization(PatternRule):
    """Recognize `LayerNormalization` over the last axes, then fold the scale and the bias after it into it.

    The difference to the mean may be computed once or twice; the squares are `Pow` or `Mul`; the root divides, or its
    reciprocal multiplies. For float32 and axes of known size. A variance written as the mean of squares minus the
    squared mean, as in Flax, stays: for a large mean it loses its digits or is 0, which the operator's does not.
    """

    opsets = "17-"
    numerics = Numerics.ROUNDING
    peers = {"onnxsim": "fuse_layer_norm", "onnxruntime": ("LayerNormFusionL1", "LayerNormFusionL2")}

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The written-out form, or the operator without a scale, or without a bias, before one."""
        norm = op.LayerNormalization(Var("y"), Const("weights"), _bind="norm", _other_attrs=True)
        written = layer_normalization(op, x)
        return Either(written, op.Mul(norm, Const("scale", silent=True)), op.Add(norm, Const("bias", silent=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.bias is not None:
            row = spread(m.bias.array(), m.weights.array().shape, m.norm.result.rank)
            return rw.again(m.norm, m.y, m.weights, row)
        return _normalized(m, "LayerNormalization", rw)


def _normalized(m: Match, op_type: str, rw: Rewriter) -> Value:
    """The written-out form as one operator, or an operator with scale 1 with the constant after it as its scale."""
    if m.norm is None:
        sizes = last_sizes(m)
        ones = rw.constant(np.ones(sizes, np.float32), like=f"{m.x.name}_scale")
        return rw.op(op_type, m.x, ones, axis=-len(sizes), epsilon=m.epsilon)
    return rescaled(m, rw)


def rescaled(m: Match, rw: Rewriter) -> Value:
    """An operator with scale 1, with the constant that multiplies its result as its scale."""
    weights = m.weights.array()
    if not (weights == 1).all():
        raise Decline
    row = spread(m.scale.array(), weights.shape, m.norm.result.rank)
    return rw.again(m.norm, m.y, row)


class FuseRmsNormalization(PatternRule):
    """Recognize `RMSNormalization` over the last axes, then fold the scale after it into it."""

    opsets = "23-"
    numerics = Numerics.ROUNDING
    peers = {"onnxsim": "fuse_rms_norm", "onnxruntime": "SimplifiedLayerNormFusion"}

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The written-out form, or the operator without a scale before one."""
        norm = op.RMSNormalization(Var("y"), Const("weights"), _bind="norm", _other_attrs=True)
        written = over_root_mean_square(op, x)
        return Either(written, op.Mul(norm, Const("scale", silent=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """One operator; a difference as the dividend is left to `LayerNormalization`."""
        if m.norm is None and m.x.made_by("Sub") is not None:
            raise Decline
        return _normalized(m, "RMSNormalization", rw)


class MoveGatherBeforeNormalization(PatternRule):
    """Move a `Gather` before a normalization, so that only the gathered positions are normalized.

    Vision transformers normalize all tokens and classify by the first. The `Gather` takes one position, or fewer than
    there are, along an axis before the normalized ones. On one thread both operators take 47 us for 197 tokens of 192
    numbers before the change and 15 us after it; 104 and 11 us with 768 numbers.
    """

    opsets = "17-"

    def pattern(self, op: OpBuilder, x: Pattern, index: Pattern) -> Pattern:
        normalized = op.AnyOf("LayerNormalization", "RMSNormalization")(x, ..., _bind="norm")
        return op.Gather(normalized, index, axis=Attr("axis"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The normalized axes are counted from the end, where they stay."""
        axis, first = m.x.axis(m.axis), m.x.axis(m.norm.attr("axis", -1))
        if axis >= first:
            raise Decline("axis {} of {} is normalized", axis, m.x.name)
        if m.index.dims() and not 0 < prod(m.index.sizes()) < m.x.size(axis):
            raise Decline("{} of {} positions are gathered", prod(m.index.sizes()), m.x.size(axis))
        parameters, normalized = m.norm.inputs[1:], len(m.x.dims()) - first
        for value in m.norm.operands[1:]:
            if len(value.dims()) > normalized:
                raise Decline("{} may vary between positions", value.name)
        taken = rw.op("Gather", m.x, m.index, axis=axis)
        return rw.again(m.norm, taken, *parameters, axis=-normalized)
