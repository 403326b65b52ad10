"""Scales and shifts of single channels, taken into the weights of the convolution after them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.convolution import narrowed, per_channel
from graphopt_passes.fusion.gelu import completes_gelu


def _input_constant(node: Node, ops: tuple[str, ...]) -> tuple[Node, Value, np.ndarray, np.ndarray] | Mismatch | None:
    """The node before a `Conv`, what it reads, its constant by input channel, and the kernel of the `Conv`."""
    value, weight = node.input(0), node.input(1)
    before = made_by(value, *ops)
    if value is None or weight is None or before is None:
        return None
    left, right = before.input(0), before.input(1)
    if left is None or right is None:
        return None
    x, other = (left, right) if right.is_const or before.op in ("Sub", "Div") else (right, left)
    constant = other.const()
    if constant is None:
        return None
    problem = only_reader(value, node)
    if problem is not None:
        return problem
    kernel = weight.const()
    if kernel is None:
        return Mismatch("the weight {} is not constant", weight.name)
    channels = kernel.shape[1] * node.attr("group", 1)
    row = per_channel(constant, kernel.ndim, channels)
    if row is None or not np.isfinite(row).all():
        return Mismatch("{} has shape {}, not one finite number per channel", other.name, constant.shape)
    if x.rank != kernel.ndim or (constant.size > 1 and x.shape is not None and x.shape[1] != channels):
        return Mismatch("{} is not known to have {} channels of its own", x.name, channels)
    return before, x, row, kernel


def _by_input(kernel: np.ndarray, row: np.ndarray, group: int) -> np.ndarray:
    """The kernel in float64, each weight multiplied by the number of the input channel that it reads."""
    outputs, inputs = kernel.shape[:2]
    by = np.repeat(row.reshape(group, inputs), outputs // group, axis=0)
    return np.asarray(kernel.astype(np.float64) * by.reshape(outputs, inputs, *(1,) * (kernel.ndim - 2)))


class FusePrecedingMulIntoConv(OpRule):
    """Multiply the weights of a `Conv` by the constants that its input is multiplied or divided by.

    Padding does not matter, since zeros stay zeros. The 0.5 of a written-out Gelu stays: runtimes make one operator of
    the whole, and a multiplication that is gone would cost them that.
    """

    name = "fuse_preceding_mul_into_conv"
    ops = ("Conv",)
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxsim": "fuse_preceding_mul_into_conv"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Scale the kernel along its input channels."""
        found = _input_constant(node, ("Mul", "Div"))
        if not isinstance(found, tuple):
            return found
        before, x, row, kernel = found
        if completes_gelu(before):
            return Mismatch("{} is the last factor of a Gelu", ", ".join(v.name for v in before.outputs if v))
        if before.op == "Div":
            if not row.all():
                return Mismatch("the input is divided by zero")
            row = 1.0 / row
        scaled = narrowed(_by_input(kernel, row, node.attr("group", 1)), kernel.dtype)
        if scaled is None:
            return Mismatch("the new weights leave the range of their element type")
        weight = rw.constant(scaled, like=node.inputs[1])
        return rw.replace(node, [rw.op("Conv", x, weight, node.input(2), **node.attrs)])


class FusePrecedingAddIntoConv(OpRule):
    """Take a constant that is added to, or subtracted from, the input of a `Conv` into its bias.

    Only without padding, which would be added around the sum.
    """

    name = "fuse_preceding_add_into_conv"
    ops = ("Conv",)
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Convolve the constant."""
        found = _input_constant(node, ("Add", "Sub"))
        if not isinstance(found, tuple):
            return found
        before, x, row, kernel = found
        if any(node.attr("pads") or ()) or node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return Mismatch("the convolution pads")
        shift = _by_input(kernel, -row if before.op == "Sub" else row, node.attr("group", 1))
        total = shift.reshape(len(shift), -1).sum(axis=1)
        bias = node.input(2)
        if bias is not None:
            array = bias.const()
            if array is None:
                return Mismatch("the bias {} is not constant", bias.name)
            total = total + array.astype(np.float64)
        narrow = narrowed(total, kernel.dtype)
        if narrow is None:
            return Mismatch("the new bias leaves the range of its element type")
        constant = rw.constant(narrow, like=bias or f"{x.name}_bias")
        return rw.replace(node, [rw.op("Conv", x, node.inputs[1], constant, **node.attrs)])
