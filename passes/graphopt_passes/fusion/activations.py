"""Activations as one operator, or as a plainer one."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.match import Const, Match, OpBuilder, Pattern, Var
from graphopt.rewrite import Decline, PatternRule, Rewriter, Value


class FuseHardSwish(PatternRule):
    """Recognize `x * hardsigmoid(x)` as `HardSwish`, which came with opset 14, for float32."""

    opsets = "14-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """The factors in either order; the slope is 1/6 as a single float has it."""
        x = Var("x", dtype=TensorProto.FLOAT)
        return op.Mul(x, op.HardSigmoid(x, alpha=float(np.float32(1 / 6)), beta=0.5))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("HardSwish", m.x)


class ReplacePreluWithLeakyRelu(PatternRule):
    """Replace a `PRelu` whose slope is one constant number by `LeakyRelu`.

    ONNX Runtime computes the first element by element, the second in vectors and inside of convolutions. For float32.
    """

    opsets = "7-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """The slope may be written once for each channel."""
        return op.PRelu(Var("x", dtype=TensorProto.FLOAT), Const("slope"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """One number for all elements, which leaves the shape as it is: the runtime refuses others, or enlarges it."""
        slope = m.slope.array()
        numbers = slope.reshape(-1)
        if not len(numbers) or not np.isfinite(numbers[0]) or (numbers != numbers[0]).any():
            raise Decline("{} is not one finite number", m.slope.name)
        dims = m.x.dims()
        fits = all(size in (1, dim) for size, dim in zip(slope.shape[::-1], dims[::-1], strict=False))
        if slope.ndim > len(dims) or not fits:
            raise Decline("{} is not known to have the shape {} broadcasts to", m.x.name, m.slope.name)
        return rw.op("LeakyRelu", m.x, alpha=float(numbers[0]))
