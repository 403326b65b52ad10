"""Scales and shifts of single channels, taken into the weights of the convolution before them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.convolution import CONVOLUTIONS, Convolution, per_channel, sole_convolution

Operands = tuple[Convolution, np.ndarray, bool]
"""The convolution, one constant per channel, and whether the convolution is the left operand."""


def _operands(node: Node) -> Operands | Mismatch | None:
    """Split the inputs of a binary node into a convolution and a constant per channel."""
    left, right = node.input(0), node.input(1)
    if left is None or right is None:
        return None
    for value, other, is_left in ((left, right, True), (right, left, False)):
        if value.producer is None or value.producer.op not in CONVOLUTIONS:
            continue
        constant = other.const()
        if constant is None:
            return Mismatch("{} is not constant", other.name)
        conv = sole_convolution(value, node)
        if not isinstance(conv, Convolution):
            return conv
        row = per_channel(constant, conv.rank, conv.channels)
        if row is None:
            return Mismatch("{} has shape {}, not one number per channel", other.name, constant.shape)
        if not np.isfinite(row).all():
            return Mismatch("{} holds infinities or NaN", other.name)
        return conv, row, is_left
    return None


class FuseAddBiasIntoConv(OpRule):
    """Let a convolution add the constant that is added to, or subtracted from, its result.

    The constant may stand on either side and have any shape that is one number per channel: `[C,1,1]`, `[1,C,1,1]`,
    or a single element. The kernel need not be constant, only a bias that is there already.
    """

    name = "fuse_add_bias_into_conv"
    ops = ("Add", "Sub")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_add_bias_into_conv",
        "onnxsim": "fuse_add_bias_into_conv",
        "onnxruntime": "ConvAddFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add the constant to the bias."""
        found = _operands(node)
        if not isinstance(found, tuple):
            return found
        conv, row, is_left = found
        if node.op == "Sub":
            if not is_left:
                return Mismatch("the convolution is what is subtracted")
            row = -row
        bias = conv.bias()
        if isinstance(bias, Mismatch):
            return bias
        fused = conv.rebuilt(rw, None, bias + row)
        return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])


class FuseMulIntoConv(OpRule):
    """Multiply the weights of a convolution by the constants that its result is multiplied or divided by.

    One number per output channel, or one for all, on either side of `Mul`, or below in `Div`.
    """

    name = "fuse_mul_into_conv"
    ops = ("Mul", "Div")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxsim": "fuse_mul_into_conv", "onnxruntime": "ConvMulFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Scale kernel and bias."""
        found = _operands(node)
        if not isinstance(found, tuple):
            return found
        conv, factor, is_left = found
        if node.op == "Div":
            if not is_left:
                return Mismatch("the convolution is what is divided by")
            if not factor.all():
                return Mismatch("the result is divided by zero")
            factor = 1.0 / factor
        weight, bias = conv.weight, conv.bias()
        if weight is None:
            return Mismatch("the weight of the convolution is not constant")
        if isinstance(bias, Mismatch):
            return bias
        fused = conv.rebuilt(rw, conv.scaled(weight, factor), bias * factor if conv.has_bias else None)
        return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])
