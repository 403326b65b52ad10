"""Scales and shifts of input channels, taken into the weights of the convolution after them."""

from __future__ import annotations

from typing import ClassVar

from graphopt.match import Const, Match, OpBuilder, Pattern
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Convolution, narrowed, narrowed_weights
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.fusion.gelu import completes_gelu
from graphopt_passes.fusion.small_weights import refuse_lost_digits_before


class AbsorbBefore(PatternRule):
    """Let a `Conv` with constant weights do the scale or shift of its input channels.

    Attributes:
        affine: the operators that scale or shift.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    affine: ClassVar[tuple[str, ...]]

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """The constant may have any shape that is one number for each channel."""
        before = op.AnyOf(*self.affine)(x, Const("constant", silent=True), _bind="before")
        return op.Conv(before, Const("kernel"), ..., _bind="conv")

    def change(self, m: Match) -> Affine:
        shape, conv = m.kernel.sizes(), Convolution.of(m.conv)
        channels = shape[1] * conv.group
        affine = Affine.of(m.before, m.x, len(shape), 1, channels)
        if m.x.rank != len(shape) or (m.constant.array().size > 1 and m.x.dims()[1] != channels):
            raise Decline("{} is not known to have {} channels of its own", m.x.name, channels)
        return affine


class FusePrecedingMulIntoConv(AbsorbBefore):
    """Multiply the weights of a `Conv` by the constants that its input is multiplied or divided by.

    Padding does not matter, since zeros stay zeros. The 0.5 of a written-out Gelu stays: runtimes make one operator of
    the whole, and a multiplication that is gone would cost them that.
    """

    affine = ("Mul", "Div")
    finite = True
    peers = {"onnxsim": "fuse_preceding_mul_into_conv", "onnxscript": "AffineConvFusion"}

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        conv, scale = Convolution.of(m.conv), self.change(m).scale
        if completes_gelu(m.before):
            raise Decline("{} is the last factor of a Gelu", m.before.result.name)
        assert scale is not None
        refuse_lost_digits_before(conv, scale)
        kernel = narrowed_weights(conv.scaled_inputs(scale), m.kernel.array().dtype)
        return conv.write(rw, rw.constant(kernel, like=m.kernel), conv.shift, m.x)


class FusePrecedingAddIntoConv(AbsorbBefore):
    """Take a constant that is added to, or subtracted from, the input of a `Conv` into its bias.

    Only without padding, which would be added around the sum.
    """

    affine = ("Add", "Sub")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        conv, shift = Convolution.of(m.conv), self.change(m).shift
        if conv.pads:
            raise Decline("the convolution pads")
        assert shift is not None
        weighted = m.kernel.array().astype("float64") * conv.of_inputs(shift)
        total = weighted.reshape(conv.channels, -1).sum(axis=1)
        bias = conv.bias()
        row = narrowed(total if bias is None else total + bias, m.kernel.array().dtype, "biases")
        return conv.write(rw, conv.kernel, rw.constant(row, like=conv.shift or f"{m.x.name}_bias"), m.x)
