"""Averages of quantized images, over windows and over all positions."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from graphopt.operators import Pool, Reduction
from graphopt.operators.window import settings_of
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.algorithm.work import check_count
from graphopt_passes.fusion.contrib.moves import Maker
from graphopt_passes.fusion.contrib.operands import DOMAIN
from graphopt_passes.fusion.contrib.parameters import Quantized, check_per_tensor

_MOST_SUMMED = 2**24
_RATIOS = (2.0**-32, 2.0**8)
"""QLinearGlobalAveragePool takes fewer elements than `_MOST_SUMMED`, and ratios of scales over their number in this
range."""
_LARGEST_WINDOW = 64
"""For larger windows the kernel of depthwise convolutions is no faster than a pool of floats."""


def _average_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A depthwise convolution with ones: the kernel of QLinearAveragePool takes 10 to 20 times as long.

    That kernel is even slower than a pool of floats between dequantize and quantize.
    """
    check_per_tensor(operands)
    (x,), pool = operands, Pool.of(op)
    shape, rank, window = x.value.shape, len(pool.kernel) + 2, math.prod(pool.kernel)
    channels = shape[1] if shape is not None and len(shape) == rank == 4 else None
    if not isinstance(channels, int) or not channels:
        raise Decline("the channels of {} are not known, or it is not an image", x.value.name)
    if pool.ceil or (not pool.counts_padding and (pool.same or any(pool.before + pool.after))):
        raise Decline("the windows of {} average different numbers of elements", output.value.name)
    if pool.same and any(step != 1 for step in pool.dilations):
        raise Decline("auto_pad is set, with which convolutions take no dilations")
    pool.check_fits()
    if x.dtype == TensorProto.INT8 and rw.target.is_x86:
        raise Decline("an average of int8 is as fast in float32")
    if window > _LARGEST_WINDOW:
        raise Decline("an average of {} elements is faster in float32", window)
    check_count(channels)
    weight = rw.constant(np.ones((channels, 1, *pool.kernel), np.int8))
    part, zero = rw.constant(np.array(1 / window, np.float32)), rw.constant(np.array(0, np.int8))
    moved = settings_of(op)
    return rw.op("QLinearConv", *x.read(rw), weight, part, zero, *output.written(rw), group=channels, **moved)


def _global_average_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    (x,) = operands
    shape = x.value.shape
    check_per_tensor(operands)
    known = [size for size in (shape or ())[2:] if isinstance(size, int)]
    ratio = x.scale.item() / output.scale.item()
    # An unknown size may be any that an image can have.
    sizes = [math.prod(known)] if shape is not None and len(known) == len(shape) - 2 else [1, 2**20]
    if any(not _RATIOS[0] <= ratio / max(size, 1) < _RATIOS[1] or size >= _MOST_SUMMED for size in sizes):
        raise Decline("the kernel does not support the scales of {} and its mean", x.value.name)
    inputs = (*x.read(rw), *output.written(rw))
    return rw.op("QLinearGlobalAveragePool", *inputs, domain=DOMAIN, channels_last=0)


def _mean(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A mean over all positions of an image, as exporters write a global average pool."""
    mean, image = Reduction.of(op), operands[0].value
    if image.rank not in (3, 4) or mean.axes != tuple(range(2, image.rank)) or 0 in image.dims():
        raise Decline("{} is not a mean over the spatial axes of an image", op.result.name)
    pooled = _global_average_pool(op, operands, output, rw)
    return pooled if mean.keepdims else rw.op("Squeeze", pooled, axes=mean.axes)


AVERAGES: dict[str, Maker] = {
    "AveragePool": _average_pool, "GlobalAveragePool": _global_average_pool, "ReduceMean": _mean,
}  # fmt: skip
"""The makers of averages on integers, by operator."""
