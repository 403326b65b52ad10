"""`Relu`, `LeakyRelu`, `PRelu`, `HardSigmoid`, `HardSwish`, `Softsign`: written out, or as a slower operator."""

from __future__ import annotations

import math

import numpy as np

from graphopt.match import FLOAT32, Const, Either, Match, OpBuilder, Pattern, Product, Scalar
from graphopt.match.factors import close
from graphopt.rewrite import Decline, Level, Numerics, PatternRule, Rewriter, Value


def check_slope(x: Value, slope: Value) -> None:
    """Decline unless a constant slope broadcasts to the shape of `x`: runtimes refuse others, or enlarge the result."""
    sizes, dims = slope.sizes(), x.dims()
    fits = all(size in (1, dim) for size, dim in zip(sizes[::-1], dims[::-1], strict=False))
    if len(sizes) > len(dims) or not fits:
        raise Decline("{} is not known to keep its shape when broadcast with {}", x.name, slope.name)


_IMAGE = 3
"""The least rank of an image."""


class FuseMaxIntoRelu(PatternRule):
    """Recognize `Max(x, 0)` as `Relu`, which JAX writes like that, for float32.

    A convolution can then absorb it. The maximum of 0 and -0 may be either.
    """

    opsets = "8-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return op.Max(x, 0.0)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("Relu", m.x)


class FuseLeakyRelu(PatternRule):
    """Recognize `LeakyRelu` for float32.

    It is written as `Max(x, slope * x)`, `Relu(x) - slope * Relu(-x)`, or a `Where` that selects `x` or `slope * x`.
    """

    opsets = "8-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The comparison with zero may be strict or not, since both branches of the `Where` agree at zero."""
        below, parted = Product(x, scale="slope"), op.Relu(op.Neg(x))
        return Either(
            op.Max(x, below, _bind="larger"),
            op.Sub(op.Relu(x), Product(parted, scale="slope")),
            op.Add(op.Relu(x), Product(parted, scale="negated")),
            op.Where(op.AnyOf("Greater", "GreaterOrEqual")(x, 0.0), x, below),
            op.Where(op.AnyOf("Less", "LessOrEqual")(x, 0.0), below, x),
        )

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Below zero the product is the larger one only for a slope between 0 and 1; 0 times infinity is NaN."""
        slope = -m.negated if m.slope is None else m.slope
        if not math.isfinite(np.float32(slope)) or (m.larger is not None and not 0 < slope < 1):
            raise Decline("slope is {}, for which LeakyRelu is another function", slope)
        return rw.op("LeakyRelu", m.x, alpha=slope)


class FusePrelu(PatternRule):
    """Recognize `Relu(x) - slope * Relu(-x)` as `PRelu`, which Keras writes like that, for images of float32.

    The blocked layout has a form of `PRelu`. ONNX Runtime's own kernel takes two to three times as long as the five
    operators, hence the level. A slope of one number is left to `fuse_leaky_relu`.
    """

    level = Level.LAYOUT
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The slope may be negated, and the product added."""
        below = op.Relu(op.Neg(x))
        return Either(
            op.Add(op.Relu(x), op.Mul(below, Const("negated", silent=True))),
            op.Sub(op.Relu(x), op.Mul(below, Const("slope", silent=True))),
        )

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        given = m.slope or m.negated
        given.check_finite()
        if len(m.x.dims()) < _IMAGE:
            raise Decline("{} is not an image, and the kernel of PRelu is slower", m.x.name)
        check_slope(m.x, given)
        return rw.op("PRelu", m.x, m.slope or rw.constant(-given.array(), like=given))


class FuseHardSigmoid(PatternRule):
    """Recognize `HardSigmoid`: `clip(slope * x + shift, 0, 1)`, `clip(x + 3, 0, 6) / 6` or `clip(x, 0, 6) / 6`.

    Keras writes the first; channel gates are the second, or the third where a convolution has already added 3 and can
    then absorb the activation. For float32.
    """

    opsets = "11-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        line = op.Add(Product(x, scale="slope"), Scalar("shift", silent=True))
        sixths = (Product(op.Clip(of, 0.0, 6.0), scale="sixth") for of in (op.Add(x, 3.0, _bind="shifted"), x))
        return Either(op.Clip(line, 0.0, 1.0), *sixths)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.slope is None:
            if not close(m.sixth, 1 / 6):
                raise Decline("the clipped value is multiplied by {:.7g}, expected 1/6", m.sixth)
            return rw.op("HardSigmoid", m.x, alpha=1 / 6, beta=0.5 if m.shifted else 0.0)
        if not np.isfinite(np.array([m.slope, m.shift], np.float32)).all():
            raise Decline("slope {} and shift {} are not both finite", m.slope, m.shift)
        return rw.op("HardSigmoid", m.x, alpha=m.slope, beta=m.shift)


class FuseHardSwish(PatternRule):
    """Recognize `x * hardsigmoid(x)` as `HardSwish`, which came with opset 14, for float32."""

    opsets = "14-"

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The factors in either order; the slope is 1/6 rounded to float32."""
        return op.Mul(x, op.HardSigmoid(x, alpha=float(np.float32(1 / 6)), beta=0.5))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("HardSwish", m.x)


class FuseSoftsign(PatternRule):
    """Recognize `x / (1 + |x|)` as `Softsign`, for float32: PyTorch's exporter writes that.

    On one thread of a Zen 5 core it takes 48 us for 262,144 numbers instead of 94.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return op.Div(x, op.Add(1.0, op.Abs(x)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("Softsign", m.x)


class ReplacePreluWithLeakyRelu(PatternRule):
    """Replace a `PRelu` whose slope is one constant number with `LeakyRelu`.

    ONNX Runtime computes `PRelu` element by element, `LeakyRelu` vectorized and inside convolutions. For float32.
    """

    opsets = "7-"

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The slope may be written once for each channel."""
        return op.PRelu(x, Const("slope"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """One number for all elements, which leaves the shape as it is."""
        numbers = m.slope.array().reshape(-1)
        if not len(numbers) or not np.isfinite(numbers[0]) or (numbers != numbers[0]).any():
            raise Decline("{} is not a single finite number", m.slope.name)
        check_slope(m.x, m.slope)
        return rw.op("LeakyRelu", m.x, alpha=float(numbers[0]))
