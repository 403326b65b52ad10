"""The hard swish of MobileNetV3, written with `HardSigmoid`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.match import Match, OpBuilder, Pattern, Var
from graphopt.rewrite import PatternRule, Rewriter, Value


class FuseHardSwish(PatternRule):
    """Recognize `x * hardsigmoid(x)` as `HardSwish`, which came with opset 14, for float32."""

    opsets = "14-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """The factors in either order; the slope is 1/6 as a single float has it."""
        x = Var("x", dtype=TensorProto.FLOAT)
        return op.Mul(x, op.HardSigmoid(x, alpha=float(np.float32(1 / 6)), beta=0.5))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """One operator, of which runtimes compute the same."""
        return rw.op("HardSwish", m.x)
