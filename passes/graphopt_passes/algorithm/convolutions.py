"""Convolutions that ONNX Runtime computes by im2col or col2im, which another form avoids."""

from __future__ import annotations

from abc import abstractmethod
from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reshape, Transpose
from graphopt.operators.window import Window
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count, size_of


class ConvertWholeImageConvToSum(Weighed, OpRule):
    """Replace a depthwise `Conv` whose kernel is as large as the image with `Mul` and `ReduceSum`.

    Face recognition networks end in one. ONNX Runtime computes a product with a one-column matrix per channel.
    """

    ops = ("Conv",)
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, weight, bias = node.operand(0), node.operand(1), node.input(2)
        dims, kernel = x.dims(), weight.dims()
        if x.dtype != TensorProto.FLOAT or len(dims) < 3 or len(kernel) != len(dims):
            raise Decline
        channels = x.size(1)
        if kernel[1] != 1 or node.attr("group", 1) != channels or kernel[0] != channels:
            raise Decline
        whole = dims[2:] == kernel[2:] and node.result.dims()[2:] == (1,) * (len(dims) - 2)
        if not whole or set((window := Window.of(node, kernel[2:])).dilations) != {1}:
            raise Decline("the kernel is not known to be as large as {}", x.name)
        if window.same or any(window.before + window.after):
            raise Decline("{} is padded", x.name)
        size = size_of(x)
        then = {"kernel": len(node.operands), "element": size, "reduce": size}
        self.weigh(rw, {"kernel": 1, "matrix": count(dims[:2]), "read": size}, then)
        products = rw.op("Mul", x, Reshape.to(weight, (1, channels, *kernel[2:])).write(rw))
        total = rw.op("ReduceSum", products, axes=tuple(range(2, len(dims))), keepdims=1)
        if bias is not None:
            total = rw.op("Add", total, Reshape.to(bias, (channels, *(1,) * (len(dims) - 2))).write(rw))
        return rw.replace(node, [total])


class _Transposed(Weighed, OpRule):
    """Replace a `ConvTranspose` with constant weights and explicit padding with another form."""

    ops = ("ConvTranspose",)
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, weight = node.operand(0), node.operand(1)
        if x.dtype != TensorProto.FLOAT:
            raise Decline("{} is not float32, for which the kernels were measured", x.name)
        array = weight.array()
        if len(x.dims()) != array.ndim or array.ndim < 3:
            raise Decline
        if not array.size:
            raise Decline("{} is empty", weight.name)
        window = Window.of(node, array.shape[2:])
        if window.same or node.attr("output_shape") or node.attr("auto_pad", "NOTSET") == "VALID":
            raise Decline("the padding of {} is given by auto_pad or output_shape", node.result.name)
        size_of(x)
        return rw.replace(node, [self.write(node, array, window, rw)])

    @abstractmethod
    def write(self, node: Node, weight: np.ndarray, window: Window, rw: Rewriter) -> Value:
        """Write the other form; declines where it is not faster."""


class ConvertConvTranspose3dTo2d(_Transposed):
    """Replace a 3-D `ConvTranspose` whose depth slices do not overlap with a 2-D one that has them as channels.

    Decoders of volumes have kernels as large as the strides. 3-D col2im is slower than 2-D col2im.
    """

    numerics = Numerics.ROUNDING

    def write(self, node: Node, weight: np.ndarray, window: Window, rw: Rewriter) -> Value:
        """Move input slices to the batch axis; the output slices of each input slice become channels."""
        x, spread = node.operand(0), node.attr("output_padding") or (0, 0, 0)
        if weight.ndim != 5 or node.attr("group", 1) != 1:
            raise Decline("{} is not a volume, or its convolution is grouped", x.name)
        depth = weight.shape[2]
        if (depth, 0, 0, 0, 1) != (
            window.strides[0], window.before[0], window.after[0], spread[0], window.dilations[0],
        ):  # fmt: skip
            raise Decline("the depth slices of {} overlap or are skipped", node.result.name)
        (channels, outputs), kernel = weight.shape[:2], weight.shape[3:]
        dims, result = x.dims(), node.result.dims()
        slices, height, width = (x.size(axis) for axis in (2, 3, 4))
        tall, broad = (node.result.size(axis) for axis in (3, 4))
        self._weigh(x, node.result, weight, rw)
        moved = Transpose(x, (0, 2, 1, 3, 4)).write(rw)
        batch = dims[0] * slices if isinstance(dims[0], int) else None
        images = Reshape.to(moved, (batch, channels, height, width)).write(rw)
        bias = node.input(2)
        made = rw.op(
            "ConvTranspose", images, weight.reshape(channels, outputs * depth, *kernel),
            None if bias is None else np.repeat(bias.array(), depth), strides=window.strides[1:],
            dilations=window.dilations[1:], pads=(*window.before[1:], *window.after[1:]),
            output_padding=spread[1:] if any(spread) else None,
        )  # fmt: skip
        parted = Reshape.to(made, (dims[0], slices, outputs, depth, tall * broad)).write(rw)
        joined = Transpose(parted, (0, 2, 1, 3, 4)).write(rw)
        return Reshape.to(joined, result).write(rw)

    def _weigh(self, x: Value, result: Value, weight: np.ndarray, rw: Rewriter) -> None:
        product = count(x.dims()) * prod(weight.shape[1:])
        now = {"kernel": 1, "product": product, "columns of volumes": count(result.dims())}
        moved = count(x.dims()) + count(result.dims())
        then = {"kernel": 6, "product": product, "columns of images": count(result.dims()), "move": moved}
        self.weigh(rw, now, then)


class ConvertConvTransposeToProducts(_Transposed):
    """Replace a `ConvTranspose` whose weights interpolate rows and columns separately with two matrix products.

    Segmentation networks have such weights. A NaN or infinity spreads along its row and column, by products with 0.
    """

    numerics = Numerics.FAST

    def write(self, node: Node, weight: np.ndarray, window: Window, rw: Rewriter) -> Value:
        x, result = node.operand(0), node.result
        if weight.ndim != 4 or set(window.dilations) != {1}:
            raise Decline("{} is not an image, or its window is dilated", x.name)
        down, across = _separated(_of_each_channel(weight, int(node.attr("group", 1))))
        sizes = [(x.size(axis), result.size(axis)) for axis in (2, 3)]
        if not all(isinstance(dim, int) for dim in x.dims()[:2]):
            raise Decline("{} may be an empty batch, which MatMul rejects as its right operand", x.name)
        images, ((height, rows), (width, columns)) = count(x.dims()[:2]), sizes
        bias = node.input(2)
        now = {"kernel": 1, "transposed taps": count(x.dims()) * prod(weight.shape[2:])}
        work = images * height * columns * (width + rows)
        outputs = count(result.dims()) * (len(node.operands) - 1)
        self.weigh(rw, now, {"kernel": len(node.operands), "product": work, "element": outputs})
        factors = [
            _spread(filters, size, window.strides[at], window.before[at])
            for at, (filters, size) in enumerate(zip((down, across), sizes, strict=True))
        ]
        made = rw.op("MatMul", factors[0].T.copy(), rw.op("MatMul", x, factors[1]))
        if bias is None:
            return made
        return rw.op("Add", made, Reshape.to(bias, (x.size(1), 1, 1)).write(rw))


def _of_each_channel(weight: np.ndarray, groups: int) -> np.ndarray:
    """The window that all channels share; declines if channels are mixed, or their windows differ."""
    channels, outputs = weight.shape[:2]
    if groups == channels and outputs == 1:
        own = weight[:, 0]
    elif groups == 1 and channels == outputs:
        mixed = weight.copy()
        mixed[np.arange(channels), np.arange(channels)] = 0
        if mixed.any():
            raise Decline("the convolution mixes channels")
        own = weight[np.arange(channels), np.arange(channels)]
    else:
        raise Decline("the convolution mixes channels")
    if not np.isfinite(own).all() or (own != own[:1]).any():
        raise Decline("the channels have different weights, or weights that are not finite")
    return np.asarray(own[0], np.float64)


def _separated(window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column and row whose outer product is the window, within rounding; declines if there are none."""
    row, column = np.unravel_index(np.abs(window).argmax(), window.shape)
    largest = window[row, column]
    if not largest:
        raise Decline("the weights are all zero")
    down, across = window[:, column], window[row] / largest
    if np.abs(np.outer(down, across) - window).max() > 1e-7 * abs(largest):
        raise Decline("the kernel is not separable into a column and a row")
    return down, across


def _spread(filters: np.ndarray, sizes: tuple[int, int], stride: int, before: int) -> np.ndarray:
    """The matrix that enlarges one axis: a row per input pixel, a column per output pixel."""
    made = np.zeros(sizes)
    for pixel in range(sizes[0]):
        for at, number in enumerate(filters):
            place = pixel * stride + at - before
            if 0 <= place < sizes[1]:
                made[pixel, place] += number
    return made.astype(np.float32)
