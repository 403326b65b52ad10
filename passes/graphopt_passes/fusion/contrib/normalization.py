"""Normalizations over the last axis that an opset has no operator for, or that runtimes fused with a sum."""

from __future__ import annotations

import numpy as np

from graphopt.match import FLOAT32, Const, Either, Match, OpBuilder, Opt, Pattern, Var
from graphopt.operators.builder import with_operand
from graphopt.rewrite import Decline, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, ForRuntime, check_float, in_runtime
from graphopt_passes.fusion.normalization import (
    last_sizes,
    number_over_root_mean_square,
    over_root_mean_square,
    rescaled,
)


class FuseBranchwiseRmsNorm(ForRuntime):
    """Recognize RMS normalization over the last axis as `BranchwiseRMSNorm`, then fold the scale after it into it.

    The operator has one branch. It stands in for `RMSNormalization` before opset 23 and, with the difference from the
    mean as its operand, for `LayerNormalization` before opset 17. For float32, a last axis of known size, and an ONNX
    Runtime that has the operator. A scale of 1 is written, too: without one the runtime has slower code, 120 us for 128
    rows of 768 numbers instead of 20, while the written-out form takes 26.
    """

    opsets = "7-22"
    peers = {"onnxruntime": "SimplifiedLayerNormFusion"}

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The written-out form, with or without a scalar factor, or the operator with scale 1 before a scale."""
        branch = op.domain(DOMAIN).BranchwiseRMSNorm
        norm = branch(Var("y"), Const("weights"), num_branches=1, _bind="norm", _other_attrs=True)
        written = Either(over_root_mean_square(op, x), number_over_root_mean_square(op, x))
        return Either(written, op.Mul(norm, Const("scale", silent=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.norm is not None:
            return rescaled(m, rw)
        if len(last_sizes(m)) != 1:
            raise Decline("axes {} are not the last axis only", m.axes)
        factor = 1.0 if m.factor is None else m.factor
        if not np.isfinite(factor):
            raise Decline("the scale is not finite")
        factors = rw.constant(np.full(last_sizes(m), factor, np.float32), like=f"{m.x.name}_scale")
        return _branchwise(rw, m.x, factors, epsilon=m.epsilon)


def _branchwise(rw: Rewriter, x: Value, scale: Value, *, epsilon: float) -> Value:
    if not in_runtime("BranchwiseRMSNorm"):
        raise Decline("this ONNX Runtime has no BranchwiseRMSNorm")
    return rw.op("BranchwiseRMSNorm", x, scale, domain=DOMAIN, num_branches=1, epsilon=epsilon)


def skip_layer_normalization(op: OpBuilder, x: Pattern, skip: Pattern, gamma: Pattern) -> Pattern:
    """The operator that runtimes make of a sum and its normalization."""
    beta, bias = Opt(Var("beta")), Opt(Var("bias"))
    return op.domain(DOMAIN).SkipLayerNormalization(x, skip, gamma, beta, bias, _bind="whole", _other_attrs=True)


def check_sum(m: Match) -> None:
    """Decline unless a fused sum and normalization can be written as these two again."""
    check_float(m.x)
    try:
        m.skip.check_fits(m.x)
    except Decline:
        reason = "{} is not known to broadcast to {}, where the runtime differs from Add"
        raise Decline(reason, m.skip.name, m.x.name) from None
    for statistic in m.root.outputs[1:3]:
        if statistic is not None and statistic.uses:
            raise Decline("the statistics output {} is used", statistic.name)


class ReplaceSkipLayerNormalization(ForRuntime):
    """Replace `SkipLayerNormalization` or `SkipSimplifiedLayerNormalization` with `Add` and a normalization.

    Models saved by ONNX Runtime have them. `LayerNormalization` needs opset 17; the simplified one becomes
    `RMSNormalization` from opset 23 on, `BranchwiseRMSNorm` before.
    """

    def pattern(self, op: OpBuilder, x: Pattern, skip: Pattern, gamma: Pattern) -> Pattern:
        """Either operator; there is no replacement for its statistics."""
        simplified = op.domain(DOMAIN).SkipSimplifiedLayerNormalization
        return Either(
            skip_layer_normalization(op, x, skip, gamma),
            simplified(x, skip, gamma, Opt(Var("bias")), _other_attrs=True),
        )

    def rewrite(self, m: Match, rw: Rewriter) -> list[Value | None]:
        check_sum(m)
        total = with_operand(rw, "Add", rw.op("Add", m.x, m.skip), m.bias)
        epsilon = float(m.root.attr("epsilon", 1e-12))
        if m.whole is not None:
            normalized = rw.op("LayerNormalization", total, m.gamma, m.beta, axis=-1, epsilon=epsilon)
        elif rw.graph.has("RMSNormalization"):
            normalized = rw.op("RMSNormalization", total, m.gamma, axis=-1, epsilon=epsilon)
        else:
            normalized = _branchwise(rw, total, m.gamma, epsilon=epsilon)
        outputs: list[Value | None] = [normalized, None, None, total]
        return outputs[: len(m.root.outputs)]
