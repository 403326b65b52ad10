"""Convolutions with few outputs, which fill few lanes of a block."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.operators.window import Window
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt.system.machine import BLOCKS
from graphopt_passes.algorithm import work
from graphopt_passes.layout import timing
from graphopt_passes.layout.blocks import DOMAIN, ForBlocks

_SIDES = (2, 3, 4)
_MOST_OUTPUTS = 64
_MOST_WEIGHTS = 1 << 18
"""The most outputs, and elements of weights, of the new convolution: more weights leave the near cache."""

_FOURS = 4
"""Channels that are not a multiple of this are padded before they are reordered."""


class ConvertFewOutputsToNeighbours(ForBlocks, OpRule):
    """Compute a square of adjacent positions of a convolution with few outputs as outputs of one position.

    Networks that generate images end in such a convolution. Blocked kernels compute unused lanes, too, and in NCHW the
    matrix product has few rows. A larger window with larger strides covers the windows of a square; outside of each
    original window, weights are zero. `DepthToSpace` brings the positions in order. Convolutions take 0.22 (7x7, 32 to
    2 channels) to 0.85 (3x3, 64 to 8) of the time (Zen 5).

    An infinity that only some windows of a square contain gives NaN in the others.

    `Options(extra={"convert_few_outputs_to_neighbours": {"force": True}})` converts to the largest squares, whatever it
    costs.
    """

    ops = ("Conv", "com.microsoft::FusedConv")
    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, tensor = node.operand(0), node.operand(1).constant_tensor
        if tensor is None or len(tensor.dims) != 4 or not tensor.numel or prod(tensor.dims[2:]) == 1:
            raise Decline
        if node.attr("group", 1) != 1 or len(node.inputs) > 3:  # a FusedConv may add an image
            raise Decline
        if 2 * tensor.dims[0] > rw.target.block:
            raise Decline
        if tensor.dtype != TensorProto.FLOAT or rw.target.block not in BLOCKS:
            raise Decline("there is no blocked layout for {}", x.name)
        if rw.model.opset(DOMAIN) or node.graph.in_function:
            raise Decline("it cannot be blocked here")
        window = Window.of(node, tensor.dims[2:])
        if set(window.dilations) != {1}:
            raise Decline("the windows of {} have gaps", node.result.name)
        return rw.replace(node, [_written(node, _side(node, window, rw), window, rw)])


def _side(node: Node, window: Window, rw: Rewriter) -> int:
    """The best side of a square; declines if none is faster by more than the model's error."""
    result, (outputs, inputs, *_) = node.result, node.operand(1).sizes()
    sizes = result.size(2), result.size(3)
    sides = [
        side for side in _SIDES
        if side**2 * outputs <= _MOST_OUTPUTS and all(size and size % side == 0 for size in sizes)
        and side**2 * outputs * inputs * prod(_kernel(window, side)) <= _MOST_WEIGHTS
    ]  # fmt: skip
    if not sides:
        raise Decline("the positions of {} form no squares, or weights of these are too many", result.name)
    if rw.options.forces(ConvertFewOutputsToNeighbours.name):
        return sides[-1]
    times = {side: _time(node, side, window, rw) for side in (1, *sides)}
    best = min(sides, key=lambda side: times[side])
    if times[best] > times[1] * (1 - timing.rates_of(rw.target).error):
        raise Decline("squares are expected to take {:.0f} us, positions {:.0f} us", times[best], times[1])
    return best


def _kernel(window: Window, side: int) -> tuple[int, ...]:
    """The size of a window that covers those of a square of positions."""
    sizes = zip(window.kernel, window.strides, strict=True)
    return tuple(size + step * (side - 1) for size, step in sizes if isinstance(size, int))


def _time(node: Node, side: int, window: Window, rw: Rewriter) -> float:
    """Microseconds with squares of a side, in NCHW or in blocks; what reads single positions may read blocks."""
    target, result = rw.target, node.result
    (outputs, inputs, *_), batch = node.operand(1).sizes(), node.result.dims()[0]
    images = batch if isinstance(batch, int) else 1
    height, width = result.size(2) // side, result.size(3) // side
    positions = images * height * width
    high, wide = _kernel(window, side)
    step = side * max(window.strides)
    plain, blocked = timing.convolution(
        inputs, side**2 * outputs, (high, wide), (height, width), target, batch=images, stride=step
    )
    if inputs >= target.block:
        blocked += timing.reorder(inputs, positions * step**2, target) * (1 if inputs % _FOURS == 0 else 2)
    if side == 1:
        return min(plain, blocked)
    moved = work.price({"kernel": 5, "move": 2 * positions * side**2 * outputs}, work.rates_of(target))
    return min(plain, blocked + timing.reorder(side**2 * outputs, positions, target)) + moved


def _written(node: Node, side: int, window: Window, rw: Rewriter) -> Value:
    """The convolution of squares, and the `DepthToSpace` that brings its outputs in order."""
    weight, bias, (before, after) = node.operand(1).array(), node.input(2), window.padding()
    (outputs, inputs, height, width), (down, across) = weight.shape, window.strides
    kernel = np.zeros((side, side, outputs, inputs, *_kernel(window, side)), np.float32)
    for row, column in np.ndindex(side, side):
        top, left = row * down, column * across
        kernel[row, column, :, :, top : top + height, left : left + width] = weight
    squares = rw.again(
        node, node.operand(0), kernel.reshape(-1, *kernel.shape[3:]),
        None if bias is None else np.tile(bias.array(), side**2), kernel_shape=kernel.shape[4:],
        strides=(down * side, across * side), pads=(*before, *after), auto_pad=None,
    )  # fmt: skip
    return rw.op("DepthToSpace", squares, blocksize=side)
