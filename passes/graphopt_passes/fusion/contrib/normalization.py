"""Normalization over the last axis where the standard has no operator for it yet."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, in_runtime
from graphopt_passes.fusion.normalization import count_axes, read_scatter, spread

_NORM = f"{DOMAIN}::BranchwiseRMSNorm"


class FuseBranchwiseRmsNorm(OpRule):
    """Recognize a division by the root of the mean of squares over the last axis, then take the scale after it into it.

    Written as `BranchwiseRMSNorm` with one branch. It serves where `RMSNormalization` (opset 23) is missing, and where
    `LayerNormalization` (opset 17) is: there what is divided is the difference from the mean. For float32, a last axis
    of known size, and an ONNX Runtime that has the operator.
    """

    name = "fuse_branchwise_rms_norm"
    ops = ("Div", "Mul")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = "7-22"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "SimplifiedLayerNormFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a normalization that ends here, or for a scale of one."""
        scatter = read_scatter(node)
        if scatter is None:
            return _scale(node, rw) if node.op == "Mul" else None
        x = scatter.value
        count = count_axes(node, x, scatter, scatter.inner)
        if isinstance(count, Mismatch):
            return count
        if count != 1:
            return Mismatch("axes {} are not the last one alone", scatter.axes)
        if not in_runtime("BranchwiseRMSNorm"):
            return Mismatch("this ONNX Runtime has no BranchwiseRMSNorm")
        norm = rw.op("BranchwiseRMSNorm", x, domain=DOMAIN, num_branches=1, epsilon=scatter.epsilon)
        return rw.replace(node, [norm])


def _scale(node: Node, rw: Rewriter) -> Outcome:
    for value, scale in (node.inputs, node.inputs[::-1]):
        norm = value.producer if value is not None else None
        constant = scale.const() if scale is not None else None
        if value is None or norm is None or norm.op != _NORM or constant is None or norm.input(1) is not None:
            continue
        shape = norm.inputs[0].shape if norm.inputs[0] is not None else None
        if norm.attr("num_branches", 0) != 1 or not shape or not isinstance(shape[-1], int):
            return Mismatch("{} is not normalized along one axis of known size", value.name)
        problem = only_reader(value, node)
        if problem is not None:
            return problem
        row = spread(constant, (shape[-1],), len(shape))
        if row is None:
            return Mismatch("the constant of shape {} varies along other axes", constant.shape)
        return rw.replace(node, [rw.op("BranchwiseRMSNorm", norm.inputs[0], row, domain=DOMAIN, **norm.attrs)])
    return None
