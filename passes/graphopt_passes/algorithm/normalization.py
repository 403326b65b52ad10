"""Scales and biases of channels, and normalizations along them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.match import Const, Match, OpBuilder, Pattern, Var
from graphopt.operators import Reshape
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, PatternRule, Rewriter
from graphopt_passes.algorithm.work import Weighed, count, size_of
from graphopt_passes.layout.norms import ConvertLayerNormalizationAxis


class FuseMulAddIntoBatchNormalization(Weighed, PatternRule):
    """Apply a constant scale and bias of each channel in one pass, by a `BatchNormalization` of mean 0 and variance 1.

    Without an epsilon its kernel multiplies and adds as the two operators do, to the bit.
    """

    name = "fuse_mul_add_into_batch_normalization"
    opsets = "9-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """A product that is read for its sum alone."""
        scaled = op.Mul(Var("x", dtype=TensorProto.FLOAT), Const("scale", silent=True))
        return op.Add(scaled, Const("bias", silent=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Both constants have one number for each channel, or one for all."""
        dims = m.x.dims()
        if len(dims) < 3 or m.x.is_const:
            raise Decline
        channels = m.x.size(1)
        scale, bias = (_by_channel(value, channels, len(dims)) for value in (m.scale, m.bias))
        size = size_of(m.x)
        self.weigh(rw, {"kernel": 2, "element": 2 * size}, {"kernel": 1, "element": size})
        zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        return rw.op("BatchNormalization", m.x, scale, bias, zeros, ones, epsilon=0.0)


def _by_channel(value: Value, channels: int, rank: int) -> np.ndarray:
    """The numbers of the channels.

    Raises:
        Decline: it does not have one for each.
    """
    array = value.array()
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.ndim > rank or shape not in ((1, channels, *(1,) * (rank - 2)), (1,) * rank):
        raise Decline("{} has no number for each channel", value.name)
    if not np.isfinite(array).all():
        raise Decline("{} is not finite, and is multiplied by a mean of 0", value.name)
    if (np.signbit(array) & (array == 0)).any():
        raise Decline("{} holds a negative zero, which the mean of 0 would make positive", value.name)
    return np.broadcast_to(array.reshape(-1), channels).copy()


class ConvertChannelNormalizationToLast(Weighed, ConvertLayerNormalizationAxis):
    """Compute a normalization over channels that is written out by `LayerNormalization` between two `Transpose`.

    It is `convert_layer_normalization_axis` where no layout is chosen.
    """

    name = "convert_channel_normalization_to_last"
    family = "fusion"  # before its reductions are other forms
    level = Level.EXTENDED

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The same, where it is faster."""
        if m.norm is None:
            size = size_of(m.x)
            then = {"kernel": 3, "move": 2 * size, "normalize": size}
            reduced = "reduce leading" if m.x.dims()[0] == 1 else "reduce"
            self.weigh(rw, {"kernel": 8, "element": 4 * size, reduced: 2 * size}, then)
        return super().rewrite(m, rw)


class ConvertGroupNormalizationToInstance(Weighed, OpRule):
    """Compute `GroupNormalization` by `InstanceNormalization` of the groups, and `BatchNormalization` for its scale.

    The runtime has no kernel for it and takes it apart into a dozen operators. The `BatchNormalization` has a mean of 0
    and a variance of 1.
    """

    name = "convert_group_normalization_to_instance"
    ops = ("GroupNormalization",)
    opsets = "21-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Groups become channels, with all that is in them as one axis."""
        x = node.operand(0)
        dims, groups, epsilon = x.dims(), int(node.attr("num_groups")), node.attr("epsilon", 1e-5)
        if x.dtype != TensorProto.FLOAT or len(dims) < 3:
            raise Decline("{} is no image of float32, for which the kernels were measured", x.name)
        channels, size = x.size(1), size_of(x)
        if channels % groups:
            raise Decline("{} channels are not parted into {} groups", channels, groups)
        scale, bias = (_by_channel(node.operand(index), channels, 2) for index in (1, 2))
        self.weigh(rw, {"kernel": 14, "element": 6 * size}, {"kernel": 4, "element": 3 * size})
        known = all(isinstance(dim, int) for dim in dims[2:])
        parted = Reshape.to(x, (dims[0], groups, channels // groups * count(dims[2:]) if known else None)).write(rw)
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        normal = rw.op("InstanceNormalization", parted, ones[:groups], zeros[:groups], epsilon=epsilon)
        image = Reshape.to(normal, dims).write(rw)
        image = rw.op("BatchNormalization", image, scale, bias, zeros, ones, epsilon=0.0)
        return rw.replace(node, [image])
