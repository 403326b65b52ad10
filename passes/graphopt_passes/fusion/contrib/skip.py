"""Normalizations that ONNX Runtime joined with the addition before them, which its CPU kernels make slower."""

from __future__ import annotations

from graphopt.match import Either, Match, OpBuilder, Opt, Pattern, Var
from graphopt.rewrite import Decline, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, ForRuntime, check_float, in_runtime


class ReplaceSkipLayerNormalization(ForRuntime):
    """Write `SkipLayerNormalization`, or `SkipSimplifiedLayerNormalization`, as `Add` and a normalization.

    Models that ONNX Runtime saved have them. `LayerNormalization` needs opset 17; for the simplified one
    `RMSNormalization` serves from opset 23 on, `BranchwiseRMSNorm` before.
    """

    def pattern(self, op: OpBuilder, x: Pattern, skip: Pattern, gamma: Pattern) -> Pattern:
        """Both operators; of their statistics nothing is known."""
        contrib, bias = op.domain(DOMAIN), Opt(Var("bias"))
        return Either(
            contrib.SkipLayerNormalization(x, skip, gamma, Opt(Var("beta")), bias, _bind="whole", _other_attrs=True),
            contrib.SkipSimplifiedLayerNormalization(x, skip, gamma, bias, _other_attrs=True),
        )

    def rewrite(self, m: Match, rw: Rewriter) -> list[Value | None]:
        """Add what is added, then normalize."""
        check_float(m.x)
        if not _broadcasts(m.skip, m.x):
            raise Decline(
                "{} is not known to broadcast to {}: runtimes compute what no Add does", m.skip.name, m.x.name
            )
        for statistic in m.root.outputs[1:3]:
            if statistic is not None and statistic.uses:
                raise Decline("{}, a statistic, is used", statistic.name)
        total = rw.op("Add", m.x, m.skip)
        if m.bias is not None:
            total = rw.op("Add", total, m.bias)
        epsilon = float(m.root.attr("epsilon", 1e-12))
        if m.whole is not None:
            normalized = rw.op("LayerNormalization", total, m.gamma, m.beta, axis=-1, epsilon=epsilon)
        else:
            normalized = _root_mean_square(total, m, epsilon, rw)
        outputs: list[Value | None] = [normalized, None, None, total]
        return outputs[: len(m.root.outputs)]


def _broadcasts(skip: Value, x: Value) -> bool:
    """Whether what is added is known to broadcast to `x` without making it larger."""
    small, large = skip.shape, x.shape
    if small is None or large is None:
        return False
    sizes = zip(small[::-1], large[::-1], strict=False)
    return len(small) <= len(large) and all(a == 1 or (a is not None and a == b) for a, b in sizes)


def _root_mean_square(total: Value, m: Match, epsilon: float, rw: Rewriter) -> Value:
    if rw.graph.has("RMSNormalization"):
        return rw.op("RMSNormalization", total, m.gamma, axis=-1, epsilon=epsilon)
    if not in_runtime("BranchwiseRMSNorm"):
        raise Decline("this ONNX Runtime has no BranchwiseRMSNorm")
    return rw.op("BranchwiseRMSNorm", total, m.gamma, domain=DOMAIN, num_branches=1, epsilon=epsilon)
