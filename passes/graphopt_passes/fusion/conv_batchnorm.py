"""Batch normalization taken into the convolution before it."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.batchnorm import read_batchnorm
from graphopt_passes.fusion.convolution import Convolution, sole_convolution


class FuseBnIntoConv(OpRule):
    """Let a convolution with constant weights do what the batch normalization after it does.

    `Conv` and `ConvTranspose`, with any groups and with or without a bias. The new weights are computed in float64 and
    stored in the type of the old ones.
    """

    name = "fuse_bn_into_conv"
    ops = ("BatchNormalization",)
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_bn_into_conv",
        "onnxsim": "fuse_bn_into_conv",
        "onnxscript": "FuseBatchNormIntoConv",
        "onnxruntime": "ConvBNFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Scale the kernel and shift the bias."""
        conv = sole_convolution(node.input(0), node)
        if not isinstance(conv, Convolution):
            return conv
        affine = read_batchnorm(node)
        if isinstance(affine, Mismatch):
            return affine
        factor, offset = affine
        weight, bias = conv.weight, conv.bias()
        if weight is None:
            return Mismatch("the weight of the convolution is not constant")
        if isinstance(bias, Mismatch):
            return bias
        if len(factor) != conv.channels:
            return Mismatch("{} statistics for {} channels", len(factor), conv.channels)
        fused = conv.rebuilt(rw, conv.scaled(weight, factor), bias * factor + offset)
        return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])
