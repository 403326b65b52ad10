"""Normalizations that ONNX Runtime joined with the addition before them, which its CPU kernels make slower."""

from __future__ import annotations

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, first, in_runtime, not_float

_SKIP = f"{DOMAIN}::SkipLayerNormalization"


class ReplaceSkipLayerNormalization(OpRule):
    """Write `SkipLayerNormalization`, or `SkipSimplifiedLayerNormalization`, as `Add` and a normalization.

    Models that ONNX Runtime saved have them. `LayerNormalization` needs opset 17; for the simplified one
    `RMSNormalization` serves from opset 23 on, `BranchwiseRMSNorm` before.
    """

    name = "replace_skip_layer_normalization"
    ops = (_SKIP, f"{DOMAIN}::SkipSimplifiedLayerNormalization")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add what is added, then normalize."""
        x, skip, gamma = (node.input(i) for i in range(3))
        if x is None or skip is None or gamma is None:
            return None
        opset, whole = rw.graph.opset(), node.op == _SKIP
        beta, bias = (node.input(3), node.input(4)) if whole else (None, node.input(3))
        problem = first(not_float(x), _statistics(node))
        if problem is None and whole and opset < 17:
            problem = Mismatch("opset {} has no LayerNormalization", opset)
        if problem is None and not whole and opset < 23 and not in_runtime("BranchwiseRMSNorm"):
            problem = Mismatch("this ONNX Runtime has no BranchwiseRMSNorm")
        if problem is not None:
            return problem
        total = rw.op("Add", x, skip)
        if bias is not None:
            total = rw.op("Add", total, bias)
        epsilon = float(node.attr("epsilon", 1e-12))
        if whole:
            result = rw.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
        elif opset < 23:
            result = rw.op("BranchwiseRMSNorm", total, gamma, domain=DOMAIN, num_branches=1, epsilon=epsilon)
        else:
            result = rw.op("RMSNormalization", total, gamma, axis=-1, epsilon=epsilon)
        outputs: list[Value | None] = [result, None, None, total]
        return rw.replace(node, outputs[: len(node.outputs)])


def _statistics(node: Node) -> Mismatch | None:
    for index in (1, 2):
        value = node.output(index)
        if value is not None and value.uses:
            return Mismatch("{}, a statistic, is used", value.name)
    return None
