"""Scales and shifts of channels, folded into the weights of the operators before them."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Convolution, Linear, MatrixProduct, narrowed, narrowed_factors
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.fusion.small_weights import check_scale, refuse_lost_digits

_NORMALIZATION = ("BatchNormalization",)
_MORE_AXES = 2
"""The least index of the last axis of a value with more axes than a matrix."""


class Absorb(PatternRule):
    """Fold a scale and shift of channels into the operator before it, which is linear in a constant weight.

    Attributes:
        affine: the operators that scale and shift.
        into: the view of the linear operators.
        into_ops: the linear operators.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    affine: ClassVar[tuple[str, ...]]
    into: ClassVar[type[Linear]] = Convolution
    into_ops: ClassVar[tuple[str, ...]] = Convolution.ops

    def pattern(self, op: OpBuilder) -> Pattern:
        linear = op.AnyOf(*self.into_ops)(Var(), ..., _bind="linear")
        affine = op.AnyOf(*self.affine)
        if self.affine == _NORMALIZATION:
            return affine(linear, ...)
        return Either(affine(linear, Const(), _ordered=True), affine(Const(), linear, _ordered=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Scale the weight per channel and shift the bias, in float64; both keep their element types."""
        linear = self.read(m, rw)
        affine = linear.scaling(m.root, m.linear.result)
        refuse_lost_digits(linear, affine, m.root)
        return linear.then(affine, rw)

    def read(self, m: Match, rw: Rewriter) -> Linear:
        """The linear operator."""
        return self.into.of(m.linear)


class FuseBnIntoConv(Absorb):
    """Fold a batch normalization into the convolution with constant weights before it.

    `Conv` and `ConvTranspose`, with any groups and with or without a bias. The new weights are computed in float64 and
    stored in the type of the old ones. One that becomes too small to keep all of its digits must be negligible: beside
    a bias, or because no operator around it magnifies its operand.
    """

    affine = _NORMALIZATION
    opsets = ""
    peers = {
        "onnxoptimizer": "fuse_bn_into_conv",
        "onnxruntime": "ConvBNFusion",
        "onnxslim": ("FusionConvBN", "FusionConvTransposeBN"),
        "onnxscript": ("FuseBatchNormIntoConv", "FuseBatchNormIntoConvTranspose"),
    }


class FuseMulIntoConv(Absorb):
    """Fold constants that multiply or divide the result of a convolution into its weights.

    One number per output channel, or one for all, on either side of `Mul`, or as the divisor of `Div`. A weight that
    becomes too small to keep all of its digits must be negligible: beside a bias, or because no operator around it
    magnifies its operand.
    """

    affine = ("Mul", "Div")
    peers = {
        "onnxsim": "fuse_mul_into_conv",
        "onnxruntime": "ConvMulFusion",
        "onnxslim": ("FusionConvMul", "FusionConvTransposeMul"),
        "onnxscript": "ConvAffineFusion",
    }


class FuseAddBiasIntoConv(Absorb):
    """Fold a constant that is added to, or subtracted from, the result of a convolution into its bias.

    The constant may stand on either side and have any shape that is one number per channel: `[C,1,1]`, `[1,C,1,1]`,
    or a single element. The kernel need not be constant, only an existing bias.
    """

    affine = ("Add", "Sub")
    peers = {
        "onnxoptimizer": "fuse_add_bias_into_conv",
        "onnxruntime": "ConvAddFusion",
        "onnxslim": ("FusionConvAdd", "FusionConvTransposeAdd"),
    }


class FuseBnIntoGemm(Absorb):
    """Fold a batch normalization into the `Gemm` with constant weights before it."""

    affine = _NORMALIZATION
    opsets = "9-"
    into, into_ops = MatrixProduct, ("Gemm",)
    peers = {"onnxslim": "FusionGemm", "onnxscript": "FuseBatchNormIntoGemm"}


class FuseBnIntoMatmul(Absorb):
    """Fuse a product with a constant matrix and the batch normalization of its columns into one `Gemm`.

    If the product has more axes and a `Flatten` or `Reshape` after it makes a matrix of its rows, as in LeViT, the rows
    are flattened before the product instead.
    """

    affine = _NORMALIZATION
    opsets = "9-"
    into, into_ops = MatrixProduct, ("MatMul",)
    peers = {"onnxruntime": "MatMul_BatchNormalization_Fusion"}

    def pattern(self, op: OpBuilder) -> Pattern:
        product = op.MatMul(Var(), ..., _bind="linear")
        rows = op.AnyOf("Flatten", "Reshape")(product, ...)
        return Either(op.BatchNormalization(product, ...), op.BatchNormalization(rows, ...))

    def read(self, m: Match, rw: Rewriter) -> MatrixProduct:
        x, rows = m.linear.operand(0), m.root.operand(0)
        if rows is m.linear.result:
            return MatrixProduct.of(m.linear)
        last = len(x.dims()) - 1
        if last < _MORE_AXES:
            raise Decline("{} does not have rank 3 or more", x.name)
        product = MatrixProduct.of_rows(m.linear, rw.op("Flatten", x, axis=last))
        if rows.rank != product.rank or rows.size(product.axis) != product.channels:
            raise Decline("the columns of {} are not those of the product", rows.name)
        return product


class FuseMulIntoGemm(Absorb):
    """Fold constants that multiply or divide the result of a `Gemm` into its weights.

    One number per column, or one for all, on either side of `Mul`, or as the divisor of `Div`.
    """

    affine = ("Mul", "Div")
    into, into_ops = MatrixProduct, ("Gemm",)
    peers = {"onnxslim": "FusionGemmMul"}


class FuseAddBiasIntoGemm(Absorb):
    """Fold a constant row that is added to, or subtracted from, the result of a `Gemm` into its bias."""

    affine = ("Add", "Sub")
    into, into_ops = MatrixProduct, ("Gemm",)
    peers = {"onnxruntime": "GemmSumFusion", "onnxslim": "FusionGemmAdd"}


class FuseAffineIntoBn(PatternRule):
    """Fold a scale, a shift or a second batch normalization of channels into the batch normalization before it.

    Caffe has a `Scale` after each `BatchNorm`, which is exported as `Mul` and `Add`.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder) -> Pattern:
        first, affine = op.BatchNormalization(Var(), ..., _bind="first"), op.AnyOf("Add", "Div", "Mul", "Sub")
        after = (affine(first, Const(), _ordered=True), affine(Const(), first, _ordered=True))
        return Either(op.BatchNormalization(first, ...), *after)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Keep the statistics of the first one; its scale and bias are computed in float64 and keep their types."""
        y, (x, scale, shift, *statistics) = m.first.result, m.first.operands
        Affine.of_normalization(m.first)
        channels = len(scale.array())
        affine = Affine.of(m.root, y, len(y.dims()), y.axis(1), channels)
        if affine.scale is not None:
            check_scale(affine.scale, scale)
            factors = narrowed_factors(scale.array().astype(np.float64) * affine.scale, scale.array().dtype, "scales")
            scale = rw.constant(factors, like=scale)
        row = affine.of_bias(shift.array().astype(np.float64), channels)
        moved = rw.constant(narrowed(np.asarray(row), shift.array().dtype, "biases"), like=shift)
        return rw.op("BatchNormalization", x, scale, moved, *statistics, **m.first.attrs)


class FuseAffineIntoConcatenatedConvs(OpRule):
    """Fold a normalization, scale or shift after a `Concat` of convolutions along channels into the convolutions.

    `BatchNormalization`, and `Mul`, `Div`, `Add` and `Sub` with a constant per channel: each convolution absorbs its
    share. One operand that is no convolution gets a smaller operator of the same kind; with two there would be more
    nodes than before.
    """

    # No pattern: there may be any number of convolutions.
    ops = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
    sources = ("Concat",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        operands = node.operands[:1] if node.op == "BatchNormalization" else node.operands
        joined = next((value for value in operands if value.made_by("Concat")), None)
        if joined is None:
            raise Decline
        concat = joined.source("Concat", reader=node)
        convs = [_convolution(value, node) for value in concat.operands]
        rank = next((conv.rank for conv in convs if conv is not None), 0)
        if not rank:
            raise Decline
        if concat.attr("axis") not in (1, 1 - rank):
            raise Decline("{} does not concatenate convolutions along the channel axis", concat.result.name)
        if convs.count(None) > 1:
            raise Decline("{} inputs of the Concat are not convolutions with a single reader", convs.count(None))
        joined.sole_source("Concat", reader=node)
        parts = list(zip(convs, concat.operands, strict=True))
        ends = list(accumulate(value.size(1) if conv is None else conv.channels for conv, value in parts))
        affine = Affine.of(node, joined, rank, 1, ends[-1])
        shares = [slice(*bounds) for bounds in pairwise((0, *ends))]
        for conv, share in zip(convs, shares, strict=True):
            if conv is not None:
                refuse_lost_digits(conv, affine.share(share), node)
        made = [
            _smaller(node, value, share, ends[-1], rw) if conv is None else conv.then(affine.share(share), rw)
            for (conv, value), share in zip(parts, shares, strict=True)
        ]
        return rw.replace(node, [rw.again(concat, *made)])


def _convolution(value: Value, reader: Node) -> Convolution | None:
    """The convolution that computes a value for this reader alone; None if there is none."""
    with suppress(Decline):
        return Convolution.of(value.sole_source(*Convolution.ops, reader=reader))
    return None


def _smaller(node: Node, part: Value, share: slice, channels: int, rw: Rewriter) -> Value:
    """The same operator on the channels of one operand of the `Concat`."""
    operands: list[Value] = []
    for value in node.operands:
        array = value.const()
        if array is None:
            operands.append(part)
        elif channels > 1 and channels in array.shape:
            array = array.take(range(share.start, share.stop), axis=array.shape.index(channels))
            operands.append(rw.constant(np.ascontiguousarray(array), like=value))
        else:
            operands.append(value)
    return rw.again(node, *operands)
