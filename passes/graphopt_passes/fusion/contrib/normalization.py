"""Normalization over the last axis where the standard has no operator for it yet."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.rewrite import Decline, Level, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, in_runtime
from graphopt_passes.fusion.normalization import last_sizes, over_root_mean_square, spread


class FuseBranchwiseRmsNorm(PatternRule):
    """Recognize a division by the root of the mean of squares over the last axis, then take the scale after it into it.

    Written as `BranchwiseRMSNorm` with one branch. It serves where `RMSNormalization` (opset 23) is missing, and where
    `LayerNormalization` (opset 17) is: there what is divided is the difference from the mean. For float32, a last axis
    of known size, and an ONNX Runtime that has the operator.
    """

    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = "7-22"
    peers = {"onnxruntime": "SimplifiedLayerNormFusion"}

    def pattern(self, op: OpBuilder) -> Pattern:
        """Written out, or the operator without a scale before one."""
        norm = op.domain(DOMAIN).BranchwiseRMSNorm(Var("y"), _bind="norm", _other_attrs=True)
        written = over_root_mean_square(op, Var("x", dtype=TensorProto.FLOAT))
        return Either(written, op.Mul(norm, Const("scale", silent=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.norm is not None:
            shape = m.y.shape
            if m.norm.attr("num_branches", 0) != 1 or not shape or not isinstance(shape[-1], int):
                raise Decline("{} is not normalized along one axis of known size", m.norm.result.name)
            row = spread(m.scale.array(), (shape[-1],), len(shape))
            return rw.op("BranchwiseRMSNorm", m.y, row, domain=DOMAIN, **m.norm.attrs)
        if len(last_sizes(m)) != 1:
            raise Decline("axes {} are not the last one alone", m.axes)
        if not in_runtime("BranchwiseRMSNorm"):
            raise Decline("this ONNX Runtime has no BranchwiseRMSNorm")
        return rw.op("BranchwiseRMSNorm", m.x, domain=DOMAIN, num_branches=1, epsilon=m.epsilon)
