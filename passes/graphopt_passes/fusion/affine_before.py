"""Scales and shifts of input channels, folded into the weights of the operator after them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from graphopt.match import Const, Match, OpBuilder, Pattern
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Convolution, Linear, MatrixProduct, RowProduct, narrowed, narrowed_weights
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.fusion.gelu import completes_gelu
from graphopt_passes.fusion.small_weights import refuse_lost_digits_before


class AbsorbBefore(PatternRule):
    """Fold a scale or shift of input channels into a `Conv` with constant weights.

    Attributes:
        affine: the operators that scale or shift.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    affine: ClassVar[tuple[str, ...]]

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        before = op.AnyOf(*self.affine)(x, Const("constant", silent=True), _bind="before")
        return op.Conv(before, Const("kernel"), ..., _bind="conv")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        conv = replace(Convolution.of(m.conv), x=m.x)
        channels = m.kernel.sizes()[1] * conv.group
        affine = Affine.of(m.before, m.x, conv.rank, 1, channels)
        if m.x.rank != conv.rank or (m.constant.array().size > 1 and m.x.dims()[1] != channels):
            raise Decline("{} is not known to have {} channels before broadcasting", m.x.name, channels)
        if affine.scale is not None and completes_gelu(m.before):
            raise Decline("{} is the last factor of a Gelu", m.before.result.name)
        if affine.shift is not None and conv.pads:
            raise Decline("the convolution has padding")
        return conv.write(rw, *_with_inputs(conv, affine, rw))


class FusePrecedingMulIntoConv(AbsorbBefore):
    """Fold constants that multiply or divide the input of a `Conv` into its weights.

    Padding does not matter, since zeros stay zeros. The 0.5 of a written-out Gelu stays, so that runtimes recognize it
    and fuse all of it into one operator.
    """

    affine = ("Mul", "Div")
    finite = True
    peers = {"onnxsim": "fuse_preceding_mul_into_conv", "onnxscript": "AffineConvFusion"}


class FusePrecedingAddIntoConv(AbsorbBefore):
    """Fold a constant that is added to, or subtracted from, the input of a `Conv` into its bias.

    Only without padding, whose zeros the constant is not added to.
    """

    affine = ("Add", "Sub")


_FARTHEST = 16.0
"""Standard deviations that the mean of a normalization may be from zero: four bits of a sum cancel then."""


class FusePrecedingBnIntoConv(PatternRule):
    """Fold a batch normalization into the `Conv` with constant weights after it.

    Only without padding, whose zeros are not normalized, and if no mean is more than 16 standard deviations from zero.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder) -> Pattern:
        return op.Conv(op.BatchNormalization(..., _bind="before"), Const("kernel"), ..., _bind="conv")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        conv, x = Convolution.of(m.conv), m.before.operand(0)
        channels = m.kernel.sizes()[1] * conv.group
        if x.rank != conv.rank or x.dims()[1] != channels:
            raise Decline("{} is not known to have {} channels before broadcasting", x.name, channels)
        if conv.pads:
            raise Decline("the convolution has padding")
        affine = _normalization(m.before, channels)
        kernel, bias = _with_inputs(conv, affine, rw)
        return replace(conv, x=x).write(rw, kernel, bias)


class FusePrecedingAffineIntoGemm(OpRule):
    """Fold a scale or a batch normalization of columns into the product with a constant matrix after it.

    `Mul` and `Div` by one number, or one per column, and a batch normalization before a `Gemm` or the `MatMul` of two
    matrices; a `Flatten` or `Reshape` may lie between, as in face recognition. No mean may be more than 16 standard
    deviations from zero. The 0.5 of a written-out Gelu and the scale of a normalization stay, so that runtimes
    recognize them.
    """

    # No pattern: the scale may come before a reshape, with its constant on either side.
    ops = ("Gemm", "MatMul")
    sources = ("BatchNormalization", "Div", "Flatten", "Mul", "Reshape")
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value = node.operand(0)
        flat = value.made_by("Flatten", "Reshape")
        if flat is not None:
            value = value.sole_source("Flatten", "Reshape", reader=node).operand(0)
        before = value.sole_source("BatchNormalization", "Div", "Mul", reader=flat or node)
        if node.attr("transA", 0) or completes_gelu(before):
            raise Decline
        scales_rows = node.op == "MatMul" and before.op != "BatchNormalization"
        linear = RowProduct.of(node) if scales_rows else MatrixProduct.of(node)
        linear.kernel.check_one_use()
        if any(map(_is_normalized, before.operands)):
            raise Decline("{} is the scale of a normalization", before.result.name)
        x, affine = _of_columns(before, flat, linear)
        kernel, bias = _with_inputs(linear, affine, rw)
        moved = x if flat is None else rw.again(flat, x, *flat.inputs[1:])
        return rw.replace(node, [replace(linear, x=moved).write(rw, kernel, bias)])


def _of_columns(before: Node, flat: Node | None, linear: Linear) -> tuple[Value, Affine]:
    """The operand that a node scales or normalizes, and the scale and shift of each column of the product after it."""
    normalizes = before.op == "BatchNormalization"
    computed = [each for each in before.operands if not each.is_const]
    x = computed[0] if computed and not normalizes else before.operand(0)
    each = _each_column(x, flat, linear)
    rank, axis = len(x.dims()), 1 if flat is not None or normalizes else len(x.dims()) - 1
    channels = x.size(axis)
    affine = _normalization(before, channels) if normalizes else Affine.of(before, x, rank, axis, channels)
    return x, affine.mapped(lambda row: np.repeat(row, each))


def _is_normalized(value: Value) -> bool:
    """Whether a value is divided by a root, so that a runtime may fuse it and the scale after it into one operator."""
    maker = value.made_by("Cast", "Div", "Mul")
    if maker is not None and maker.op == "Cast":
        maker = maker.operand(0).made_by("Div", "Mul")
    return maker is not None and any(each.made_by("Pow", "Reciprocal", "Sqrt", "Div") for each in maker.operands)


def _each_column(x: Value, flat: Node | None, linear: Linear) -> int:
    """How many columns of a product each channel of `x` makes up."""
    dims, columns = x.dims(), linear.kernel.sizes()[1 if linear.node.attr("transB", 0) else 0]
    if flat is None:
        if len(dims) != linear.rank or dims[-1] != columns:
            raise Decline("{} is not known to have {} columns before broadcasting", x.name, columns)
        return 1
    sizes = [dim for dim in dims[1:] if isinstance(dim, int)]
    is_matrix = flat.result.dims()[1:] == (columns,)
    if len(dims) < 2 or len(sizes) != len(dims) - 1 or not is_matrix or math.prod(sizes) != columns:
        raise Decline("{} is not known to have {} numbers in each row of {}", x.name, columns, flat.result.name)
    return math.prod(sizes[1:])


def _normalization(node: Node, channels: int) -> Affine:
    """The scale and shift of a batch normalization; declines if they cancel nearly all digits of its operand."""
    affine = Affine.of_normalization(node, channels)
    mean, variance = (node.operand(index).array().astype(np.float64) for index in (3, 4))
    if (np.abs(mean) > _FARTHEST * np.sqrt(variance + node.attr("epsilon"))).any():
        raise Decline("a mean is more than {:.3g} standard deviations from zero", _FARTHEST)
    return affine


def _with_inputs(linear: Linear, affine: Affine, rw: Rewriter) -> tuple[Value, Value | None]:
    """The weight and the bias of an operator with the scale and shift of its input folded in."""
    scale, shift = affine.scale, affine.shift
    kernel, dtype = linear.kernel, linear.kernel.array().dtype
    if scale is not None:
        refuse_lost_digits_before(linear, scale)
        kernel = rw.constant(narrowed_weights(linear.scaled_inputs(scale), dtype), like=linear.kernel)
    if shift is None:
        return kernel, linear.shift
    total = linear.of_shift(shift)
    bias = linear.bias()
    row = narrowed(total if bias is None else total + bias, dtype, "biases")
    return kernel, rw.constant(row, like=linear.shift or f"{linear.x.name}_bias")
