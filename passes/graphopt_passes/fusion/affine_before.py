"""Scales and shifts of input channels, taken into the weights of the convolution after them."""

from __future__ import annotations

from typing import ClassVar

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Convolution, narrowed
from graphopt.rewrite import Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.gelu import completes_gelu


def _before(node: Node, *ops: str) -> tuple[Convolution, Node, Value, Affine]:
    """A `Conv` with constant weights, the node before it, the value that reads, and what it does to its channels."""
    before = node.operand(0).made_by(*ops)
    if before is None:
        raise Decline
    left, right = before.operand(0), before.operand(1)
    x, other = (left, right) if right.is_const or before.op in ("Sub", "Div") else (right, left)
    if not other.is_const:
        raise Decline
    node.operand(0).sole_source(*ops, reader=node)
    kernel = node.operand(1).array()
    channels = kernel.shape[1] * node.attr("group", 1)
    affine = Affine.of(before, x, kernel.ndim, 1, channels)
    if x.rank != kernel.ndim or (other.array().size > 1 and x.dims()[1] != channels):
        raise Decline("{} is not known to have {} channels of its own", x.name, channels)
    return Convolution.of(node), before, x, affine


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
        conv, before, x, affine = _before(node, "Mul", "Div")
        if completes_gelu(before):
            raise Decline("{} is the last factor of a Gelu", before.result.name)
        assert affine.scale is not None
        kernel = narrowed(conv.by_input(affine.scale), conv.kernel.array().dtype, "weights")
        return rw.replace(node, [conv.write(rw, rw.constant(kernel, like=conv.kernel), conv.shift, x)])


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
        conv, _, x, affine = _before(node, "Add", "Sub")
        if conv.pads:
            raise Decline("the convolution pads")
        assert affine.shift is not None
        total = conv.by_input(affine.shift).reshape(conv.channels, -1).sum(axis=1)
        bias = conv.bias()
        row = narrowed(total if bias is None else total + bias, conv.kernel.array().dtype, "biases")
        shift = rw.constant(row, like=conv.shift or f"{x.name}_bias")
        return rw.replace(node, [conv.write(rw, conv.kernel, shift, x)])
