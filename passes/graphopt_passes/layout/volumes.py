"""3-D convolutions, written as 2-D convolutions of slices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Pad, Reshape, Transpose
from graphopt.operators.window import Window
from graphopt.rewrite import OpRule, Outcome, Rewriter
from graphopt.system.machine import BLOCKS
from graphopt_passes.algorithm.work import MARGIN
from graphopt_passes.layout import timing
from graphopt_passes.layout.blocks import ForBlocks

_SWAPPED = (0, 2, 1, 3, 4)


class ConvertConv3dTo2d(ForBlocks, OpRule):
    """Replace a 3-D convolution with a sum of 2-D convolutions over slices, one for each depth of the kernel.

    The blocked layout has kernels for images only. The slices become a batch, between two `Transpose`; a `Pad` shifts
    them for each depth of the kernel. A kernel of height and width 1 needs none of it: the pixels of a slice become one
    row.

    `Options(extra={"convert_conv_3d_to_2d": {"force": True}})` converts whatever it costs.
    """

    ops = ("Conv",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, tensor = node.operand(0), node.operand(1).constant_tensor
        if len(x.dims()) != 5:
            raise Decline
        if tensor is None:
            raise Decline("{} is not constant", node.operand(1).name)
        if x.dtype != TensorProto.FLOAT or rw.target.block not in BLOCKS:
            raise Decline("there is no blocked layout for {}", x.name)
        dims, kernel = (*x.dims()[:2], *(x.size(axis) for axis in (2, 3, 4))), tuple(tensor.dims)
        if len(kernel) != 5 or not prod(kernel) or 0 in dims:
            raise Decline("{} or its kernel is empty", x.name)
        window = Window.of(node, kernel[2:])
        before, after = window.padding()
        column = kernel[3:] == (1, 1) and not any((*before[1:], *after[1:])) and window.strides[1:] == (1, 1)
        if prod(kernel[2:]) == 1:
            raise Decline("{} is a 1x1x1 convolution: as fast in NCHW", node.result.name)
        if window.strides[0] != 1 and not column:
            raise Decline("{} skips depth slices", node.result.name)
        self._weigh(node, window, column, rw)
        form = _as_rows if column else _as_slices
        return rw.replace(node, [form(node, window, (before, after), rw)])

    def _weigh(self, node: Node, window: Window, column: bool, rw: Rewriter) -> None:
        """Decline unless the other form is faster by more than the model's error."""
        if rw.options.forces(self.name):
            return
        target, group = rw.target, int(node.attr("group", 1))
        x, result = node.operand(0), node.result
        batch, inputs, outputs = x.dims()[0], x.size(1), result.size(1)
        images = batch if isinstance(batch, int) and batch else 1
        before, after = (images * value.size(2) * value.size(3) * value.size(4) for value in (x, result))
        slices, size = images * result.size(2), (result.size(3), result.size(4))
        deep, high, wide = (side for side in window.kernel if isinstance(side, int))
        taps, kernel = (1, (deep, 1)) if column else (deep, (high, wide))
        (plain, _), (_, blocked) = (
            timing.convolution(
                inputs, outputs, sides, size, target, batch=slices, stride=max(window.strides), group=group
            )
            for sides in ((deep * high, wide), kernel)
        )
        moved = timing.reorder(outputs, after, target) + taps * timing.reorder(inputs, before, target)
        then = taps * blocked + moved * (1 if column else 2)
        if then > MARGIN * plain:
            raise Decline("slices are expected to take {:.0f} us in blocks, volumes {:.0f} us", then, plain)


_Padding = tuple[tuple[int, ...], tuple[int, ...]]


def _as_rows(node: Node, window: Window, padding: _Padding, rw: Rewriter) -> Value:
    """A kernel of height and width 1: each slice becomes a row of an image as high as the volume is deep."""
    x, array = node.operand(0), node.operand(1).array()
    depth, height, width = (x.size(axis) for axis in (2, 3, 4))
    rows = Reshape.to(x, (x.dims()[0], x.size(1), depth, height * width)).write(rw)
    made = rw.op(
        "Conv", rows, array.reshape(*array.shape[:3], 1), node.input(2), group=node.attr("group"),
        strides=(window.strides[0], 1), dilations=(window.dilations[0], 1),
        pads=(padding[0][0], 0, padding[1][0], 0),
    )  # fmt: skip
    return Reshape.to(made, node.result.dims()).write(rw)


def _as_slices(node: Node, window: Window, padding: _Padding, rw: Rewriter) -> Value:
    """One convolution of all slices for each depth of the kernel, and the sum of these."""
    (before, after), x, array = padding, node.operand(0), node.operand(1).array()
    dims, result = x.dims(), node.result.dims()
    depth, channels, after_depth = x.size(2), x.size(1), node.result.size(2)
    slices = Transpose(x, _SWAPPED).write(rw)
    batch = dims[0] * after_depth if isinstance(dims[0], int) else None

    def products() -> Iterator[Value]:
        for at in range(array.shape[2]):
            start = at * window.dilations[0] - before[0]
            moved = slices
            if start or after_depth != depth:
                ends = (0, -start, 0, 0, 0), (0, start + after_depth - depth, 0, 0, 0)
                moved = Pad(slices, *ends).write(rw)
            images = Reshape.to(moved, (batch, channels, *dims[3:])).write(rw)
            yield rw.op(
                "Conv", images, np.ascontiguousarray(array[:, :, at]), None if at else node.input(2),
                group=node.attr("group"), strides=window.strides[1:], dilations=window.dilations[1:],
                pads=(*before[1:], *after[1:]),
            )  # fmt: skip

    total = reduce(lambda total, made: rw.op("Add", total, made), products())
    parted = Reshape.to(total, (dims[0], after_depth, result[1], *result[3:])).write(rw)
    return Transpose(parted, _SWAPPED).write(rw)
