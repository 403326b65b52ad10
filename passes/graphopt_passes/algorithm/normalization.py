"""Per-channel scales and biases, and normalizations along channels."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.match import FLOAT32, Const, Match, OpBuilder, Pattern
from graphopt.operators import Reshape
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, check_count, floats, joined, reduced, rows_with, size_of


class FuseMulAddIntoBatchNormalization(Weighed, PatternRule):
    """Fuse a constant per-channel `Mul` and `Add` into a `BatchNormalization` of mean 0 and variance 1.

    With epsilon 0 its kernel multiplies and adds as the two operators do, bit for bit.
    """

    opsets = "9-"

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        scaled = op.Mul(x, Const("scale", silent=True))
        return op.Add(scaled, Const("bias", silent=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
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
    """The per-channel constants as a vector; declines if they are not one per channel."""
    check_count(channels)
    array = value.array()
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.ndim > rank or shape not in ((1, channels, *(1,) * (rank - 2)), (1,) * rank):
        raise Decline("{} does not have one number per channel", value.name)
    if not np.isfinite(array).all():
        raise Decline("{} is not finite, and is multiplied by a mean of 0", value.name)
    if (np.signbit(array) & (array == 0)).any():
        raise Decline("{} holds a negative zero, which the mean of 0 would make positive", value.name)
    return np.broadcast_to(array.reshape(-1), channels).copy()


class ConvertGroupNormalizationToInstance(Weighed, OpRule):
    """Replace `GroupNormalization` with `InstanceNormalization` over groups and a scaling `BatchNormalization`.

    The runtime has no kernel for it, and decomposes it into a dozen operators.
    """

    ops = ("GroupNormalization",)
    opsets = "21-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Reshape groups to channels, and the elements of each group to one axis."""
        x = node.operand(0)
        dims, groups, epsilon = x.dims(), int(node.attr("num_groups")), node.attr("epsilon", 1e-5)
        if x.dtype != TensorProto.FLOAT or len(dims) < 3:
            raise Decline("{} is not a float32 image, for which the kernels were measured", x.name)
        if node.attr("stash_type", TensorProto.FLOAT) != TensorProto.FLOAT:
            raise Decline("{} has a stash_type other than float32", x.name)
        channels, size = x.size(1), size_of(x)
        if channels % groups:
            raise Decline("{} channels are not a multiple of {} groups", channels, groups)
        scale, bias = (_by_channel(node.operand(index), channels, 2) for index in (1, 2))
        self.weigh(rw, {"kernel": 14, "element": 6 * size}, {"kernel": 4, "element": 3 * size})
        parted = Reshape.to(x, (dims[0], groups, joined((channels // groups, *dims[2:])))).write(rw)
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        normal = rw.op("InstanceNormalization", parted, ones[:groups], zeros[:groups], epsilon=epsilon)
        image = Reshape.to(normal, dims).write(rw)
        image = rw.op("BatchNormalization", image, scale, bias, zeros, ones, epsilon=0.0)
        return rw.replace(node, [image])


_ROOTS: dict[float, tuple[int, ...]] = {0.5: (1,), 0.75: (1, 2), 1.0: (0,)}
"""The power as a product of repeated square roots, by their numbers of repetitions."""


class ConvertLrnToPool(Weighed, OpRule):
    """Replace `LRN` with an `AveragePool` along the channels, and square roots for its power.

    The kernel calls the general `pow`. It updates a running sum of squares, so that a NaN or an infinity persists in
    all later channels.
    """

    ops = ("LRN",)
    opsets = "7-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Reshape to an image whose rows are channels, and whose columns are the pixels of a channel."""
        x, dims = node.operand(0), node.operand(0).dims()
        window, alpha = int(node.attr("size")), float(node.attr("alpha", 1e-4))
        beta, bias = float(node.attr("beta", 0.75)), float(node.attr("bias", 1.0))
        if x.dtype != TensorProto.FLOAT or len(dims) < 3:
            raise Decline("{} is not a float32 image, for which the kernels were measured", x.name)
        if beta not in _ROOTS or not 0 < alpha < np.inf or not 0 < bias < np.inf:
            raise Decline("beta is {}, alpha {} and bias {}, for which there is no faster form", beta, alpha, bias)
        if window % 2 == 0:
            raise Decline("the window has {} channels, expected an odd number", window)
        size, channels = size_of(x), x.size(1)
        then = {"kernel": 8 + 2 * len(_ROOTS[beta]), "element": 8 * size, "channel taps": window * size}
        self.weigh(rw, {"kernel": 1, "lrn": size}, then)
        rows = Reshape.to(rw.op("Mul", x, x), (dims[0], 1, channels, joined(dims[2:]))).write(rw)
        pads = ((window - 1) // 2, 0, window // 2, 0)
        means = rw.op("AveragePool", rows, kernel_shape=(window, 1), pads=pads, count_include_pad=1)
        scaled = rw.op("Mul", Reshape.to(means, dims).write(rw), np.array(alpha, np.float32))
        base = rw.op("Add", scaled, np.array(bias, np.float32))
        roots = [base]
        for _ in range(max(_ROOTS[beta])):
            roots.append(rw.op("Sqrt", roots[-1]))
        below = roots[_ROOTS[beta][0]]
        for at in _ROOTS[beta][1:]:
            below = rw.op("Mul", below, roots[at])
        return rw.replace(node, [rw.op("Div", x, below)])


class ConvertLpNormalizationToQuotient(Weighed, OpRule):
    """Replace `LpNormalization` with a quotient by a norm computed by reductions.

    Where the norm is 0, the divisor is infinity, and the result 0.
    """

    ops = ("LpNormalization",)
    opsets = "9-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, order = node.operand(0), int(node.attr("p", 2))
        axis = x.axis(node.attr("axis", -1))
        size = floats(x)
        if order not in (1, 2):
            raise Decline("{} is not normalized by a norm of order 1 or 2", x.name)
        norms = size / max(x.size(axis), 1)
        leading = all(dim == 1 for dim in x.dims()[:axis]) and axis < len(x.dims()) - 1
        sums = {"reduce leading": size} if leading else {"reduce": reduced(x, (axis,))}
        then = {"kernel": 6, "element": 2 * (size + norms), "where": norms, "short row": rows_with(x, (axis,)), **sums}
        self.weigh(rw, {"kernel": 1, "lp normalization": size}, then)
        powers = rw.op("Mul", x, x) if order == 2 else rw.op("Abs", x)
        total = rw.op("ReduceSum", powers, axes=(axis,), keepdims=1)
        norm = rw.op("Sqrt", total) if order == 2 else total
        none = rw.op("Equal", norm, np.array(0, np.float32))
        divisor = rw.op("Where", none, np.array(np.inf, np.float32), norm)
        return rw.replace(node, [rw.op("Div", x, divisor)])
