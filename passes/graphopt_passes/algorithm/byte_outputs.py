"""Quantized convolutions with few outputs, for which kernels take as long as for many."""

from __future__ import annotations

from math import prod

import numpy as np

from graphopt.operators.window import Window
from graphopt.rewrite import Decline, Rewriter, Value
from graphopt_passes.algorithm.byte_convolutions import FOUR, LANES, ByteConvolution, OfBytes
from graphopt_passes.algorithm.work import Work, price, rates_of


def _few(columns: float, outputs: int, *, signed: bool) -> Work:
    """The work of up to sixteen outputs; `columns` counts window elements over all positions."""
    if not signed:
        return {"unsigned eight" if outputs <= LANES // 2 else "unsigned sixteen": columns}
    return {"byte sixteen": columns, "byte rest": columns if outputs < LANES else 0}


class ConvertByteOutputsToLanes(OfBytes):
    """Pad the outputs of a quantized convolution to a multiple of four, at least 16, and slice the result.

    The kernel takes as long for fewer than sixteen outputs as for sixteen, and writes the remainder beyond a multiple
    of four slowly.
    """

    def write(self, convolution: ByteConvolution, rw: Rewriter) -> Value:
        node, weight, positions = convolution.node, convolution.weight, convolution.positions
        outputs, inputs = len(weight), weight.shape[1]
        if convolution.group != 1:
            raise Decline
        wide = max(-(-outputs // FOUR) * FOUR, LANES)
        if wide == outputs:
            raise Decline("{} output channels already fill the vector lanes", outputs)
        column = positions * inputs * prod(weight.shape[2:])
        signed = weight.dtype == np.int8
        if wide == LANES:
            now, then = _few(column, outputs, signed=signed), _few(column, wide, signed=signed)
        elif signed:
            then = {"byte product": column * outputs}
            now = {**then, "byte rest": column, "byte rest written": positions * outputs}
        else:
            raise Decline("the weights are unsigned, and their kernel computes eight outputs at once")
        self.weigh(rw, {"kernel": 1, **now}, {"kernel": 2, **then, "row cut": positions})
        kernel = convolution.filled((wide, inputs))
        kernel[:outputs] = weight
        made = convolution.part(slice(None), node.operand(0), kernel, rw, wide=wide)
        return rw.op("Slice", made, starts=(0,), ends=(outputs,), axes=(3,))


class ConvertByteOutputsToNeighbours(OfBytes):
    """Compute adjacent positions of a quantized convolution with few outputs as outputs of one position.

    Windows of adjacent positions overlap: a wider window with a larger stride covers all of them; outside of each
    original window, weights contribute nothing. The kernel computes sixteen outputs in the time of one. With channels
    last, a `Reshape` restores the result.
    """

    def write(self, convolution: ByteConvolution, rw: Rewriter) -> Value:
        node, weight = convolution.node, convolution.weight
        outputs, inputs, height, width = weight.shape
        if convolution.group != 1 or outputs > LANES // 2:
            raise Decline
        window = Window.of(node, (height, width))
        step, rest = divmod(window.strides[1], window.dilations[1])
        if window.same or rest:
            raise Decline("{} has auto_pad, or a stride that is not a multiple of its dilation", node.result.name)
        wide = node.result.dims()[2]
        choices = [one for one in range(2, LANES // outputs + 1) if isinstance(wide, int) and wide and wide % one == 0]
        if not choices:
            raise Decline("the width of {} is not known to have a small divisor", node.result.name)
        works = {one: self._work(convolution, one, width + (one - 1) * step) for one in (1, *choices)}
        rates = rates_of(rw.target)
        best = min(choices, key=lambda one: price(works[one], rates))
        self.weigh(rw, works[1], {**works[best], "kernel": 2})
        kernel = np.tile(convolution.filled((outputs, inputs))[..., :1], width + (best - 1) * step)
        kernel = np.tile(kernel, (best, 1, 1, 1))
        for at in range(best):
            kernel[at * outputs : (at + 1) * outputs, ..., at * step : at * step + width] = weight
        made = convolution.part(
            np.tile(np.arange(outputs), best), node.operand(0), kernel, rw, kernel_shape=(height, kernel.shape[3]),
            strides=(window.strides[0], window.strides[1] * best),
        )  # fmt: skip
        return rw.op("Reshape", made, rw.constant(np.array((0, 0, wide, outputs), np.int64)))

    def _work(self, convolution: ByteConvolution, neighbours: int, width: int) -> Work:
        """The work of a convolution with a window of `width` that covers `neighbours` positions."""
        outputs, inputs, height, _ = convolution.weight.shape
        columns = convolution.positions * prod((inputs, height, width)) / neighbours
        return {"kernel": 1, **_few(columns, neighbours * outputs, signed=convolution.weight.dtype == np.int8)}
