"""`Relu`, `LeakyRelu`, `PRelu`, `HardSigmoid`, `HardSwish`, `Softsign`: written out, or written as a slower one."""

from __future__ import annotations

import math

import numpy as np

from graphopt.match import FLOAT32, Const, Either, Match, OpBuilder, Pattern, Product, Scalar
from graphopt.match.factors import close
from graphopt.rewrite import Decline, Level, Numerics, PatternRule, Rewriter, Value


def check_slope(x: Value, slope: Value) -> None:
    """Decline unless a constant slope leaves the shape as it is: the runtime refuses others, or enlarges it."""
    sizes, dims = slope.sizes(), x.dims()
    fits = all(size in (1, dim) for size, dim in zip(sizes[::-1], dims[::-1], strict=False))
    if len(sizes) > len(dims) or not fits:
        raise Decline("{} is not known to have the shape {} broadcasts to", x.name, slope.name)


_IMAGE = 3
"""Axes of the narrowest image."""


class FuseMaxIntoRelu(PatternRule):
    """Recognize `Max(x, 0)` as `Relu`, which JAX writes like that, for float32.

    A convolution can compute it then. The larger one of a zero and a negative zero may be either.
    """

    opsets = "8-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return op.Max(x, 0.0)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("Relu", m.x)


class FuseLeakyRelu(PatternRule):
    """Recognize `LeakyRelu` for float32.

    It is written as `Max(x, slope * x)`, as `Relu(x) - slope * Relu(-x)`, or as a `Where` that chooses between the two.
    """

    opsets = "8-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """What is compared with zero decides, zero itself being the same in both."""
        below, parted = Product(x, scale="slope"), op.Relu(op.Neg(x))
        return Either(
            op.Max(x, below, _bind="larger"),
            op.Sub(op.Relu(x), Product(parted, scale="slope")),
            op.Add(op.Relu(x), Product(parted, scale="negated")),
            op.Where(op.AnyOf("Greater", "GreaterOrEqual")(x, 0.0), x, below),
            op.Where(op.AnyOf("Less", "LessOrEqual")(x, 0.0), below, x),
        )

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Below zero the product is the larger one for a slope between 0 and 1 only; 0 times infinity is no number."""
        slope = -m.negated if m.slope is None else m.slope
        if not math.isfinite(np.float32(slope)) or (m.larger is not None and not 0 < slope < 1):
            raise Decline("a slope of {} is another function", slope)
        return rw.op("LeakyRelu", m.x, alpha=slope)


class FusePrelu(PatternRule):
    """Recognize `Relu(x) - slope * Relu(-x)` as `PRelu`, which Keras writes like that, for images of float32.

    The blocked layout has a form of it. ONNX Runtime's own kernel takes two to three times as long as the five
    operators, hence the level; where the slope is one number, `fuse_leaky_relu` is for it.
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
            raise Decline("{} is no image, and the kernel of PRelu is slower", m.x.name)
        check_slope(m.x, given)
        return rw.op("PRelu", m.x, m.slope or rw.constant(-given.array(), like=given))


class FuseHardSigmoid(PatternRule):
    """Recognize `HardSigmoid`: `clip(slope * x + shift, 0, 1)`, `clip(x + 3, 0, 6) / 6` or `clip(x, 0, 6) / 6`.

    Keras writes the first; gates of channels are the second, or the third where a convolution added 3 already, which
    can compute it then. For float32.
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
                raise Decline("what is clipped is multiplied by {:.7g}, expected 1/6", m.sixth)
            return rw.op("HardSigmoid", m.x, alpha=1 / 6, beta=0.5 if m.shifted else 0.0)
        if not np.isfinite(np.array([m.slope, m.shift], np.float32)).all():
            raise Decline("slope {} and shift {} are not both finite", m.slope, m.shift)
        return rw.op("HardSigmoid", m.x, alpha=m.slope, beta=m.shift)


class FuseHardSwish(PatternRule):
    """Recognize `x * hardsigmoid(x)` as `HardSwish`, which came with opset 14, for float32."""

    opsets = "14-"

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The factors in either order; the slope is 1/6 as a single float has it."""
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
    """Replace a `PRelu` whose slope is one constant number by `LeakyRelu`.

    ONNX Runtime computes the first element by element, the second in vectors and inside of convolutions. For float32.
    """

    opsets = "7-"

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The slope may be written once for each channel."""
        return op.PRelu(x, Const("slope"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """One number for all elements, which leaves the shape as it is."""
        numbers = m.slope.array().reshape(-1)
        if not len(numbers) or not np.isfinite(numbers[0]) or (numbers != numbers[0]).any():
            raise Decline("{} is not one finite number", m.slope.name)
        check_slope(m.x, m.slope)
        return rw.op("LeakyRelu", m.x, alpha=float(numbers[0]))
