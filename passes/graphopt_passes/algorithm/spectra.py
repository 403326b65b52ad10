"""Discrete Fourier transforms as products with sines and cosines."""

from __future__ import annotations

from math import gcd

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reshape
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, check_count, count, size_of

_LONGEST = 1024
"""Most elements of a frame: the matrix of a longer frame takes more than 4 MB."""
_AXIS_INPUT_SINCE = 20


class _Spectrum(Weighed, OpRule):
    """Replace the Fourier transform of real numbers with one matrix product.

    ONNX Runtime transforms frames one by one; for lengths that are no power of two it uses longer transforms, whose
    errors are 10 to 80 times as large as those of the product. An infinity makes different numbers NaN.
    """

    numerics = Numerics.FAST

    def price(self, rw: Rewriter, frames: int, length: int, bins: int, more: Work) -> None:
        """Decline unless the product of `frames` rows is faster, including `more` work of the form."""
        if not 1 < length <= _LONGEST:
            raise Decline("a frame of {} elements would need too large a matrix", length)
        kind = "spectrum" if length & (length - 1) == 0 else "spectrum of any length"
        self.weigh(rw, {"kernel": 1, kind: frames * length}, {**more, "product": 2 * frames * length * bins})


def _waves(length: int, bins: int, window: np.ndarray | None) -> np.ndarray:
    """Cosines and sines side by side: `[length, 2 * bins]`."""
    angles = -2 * np.pi * (np.outer(np.arange(length), np.arange(bins)) % length) / length
    waves = np.stack((np.cos(angles), np.sin(angles)), -1).reshape(length, 2 * bins)
    return np.asarray(waves if window is None else waves * window[:, None], np.float32)


class ConvertDftToProduct(_Spectrum):
    """Replace a `DFT` of real numbers with a matrix product with sines and cosines."""

    ops = ("DFT",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, dims = node.operand(0), node.operand(0).dims()
        if x.dtype != TensorProto.FLOAT or len(dims) < 3 or x.size(len(dims) - 1) != 1:
            raise Decline("{} does not hold real float32 numbers", x.name)
        axis = node.attr("axis", 1)
        if rw.graph.opset() >= _AXIS_INPUT_SINCE:
            given = node.input(2)
            axis = -2 if given is None else given.integer()
        if node.attr("inverse", 0) or x.axis(axis) != len(dims) - 2:
            raise Decline("{} is transformed inversely, or not along its second to last axis", x.name)
        length, stated = x.size(len(dims) - 2), node.input(1)
        if stated is not None and stated.integer() != length:
            raise Decline("{} is truncated or padded to {} elements", x.name, stated.integer())
        bins = length // 2 + 1 if node.attr("onesided", 0) else length
        frames = size_of(x) // max(length, 1)
        self.price(rw, frames, length, bins, {"kernel": 3})
        rows = Reshape.to(x, (*dims[:-2], length)).write(rw)
        made = rw.op("MatMul", rows, _waves(length, bins, None))
        return rw.replace(node, [Reshape.to(made, (*dims[:-2], bins, 2), before=dims[:-2]).write(rw)])


class ConvertStftToProduct(_Spectrum):
    """Replace an `STFT` of real numbers with a `Gather` of frames and a matrix product with sines and cosines."""

    ops = ("STFT",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Gather frames from pieces whose length is the greatest common divisor of frame length and step."""
        x, dims = node.operand(0), node.operand(0).dims()
        if x.dtype != TensorProto.FLOAT or dims[2:] not in ((), (1,)) or len(dims) < 2:
            raise Decline("{} does not hold real float32 numbers", x.name)
        step, window, stated = node.operand(1).integer(), node.input(2), node.input(3)
        taken = None if window is None else window.array()
        length = stated.integer() if stated is not None else 0 if taken is None else taken.size
        if taken is not None and taken.shape != (length,):
            raise Decline("the window of {} is not as long as a frame", node.result.name)
        samples, bins = x.size(1), length // 2 + 1 if node.attr("onesided", 1) else length
        if step < 1 or length < 2 or samples < length:
            raise Decline("{} does not contain a frame of at least 2 samples", x.name)
        frames, piece = 1 + (samples - length) // step, gcd(step, length)
        batch = count(dims[:1])
        size_of(x)
        pieces = batch * frames * length / piece
        more = {"kernel": 6, "gathered row": pieces, "element": batch * frames * length}
        self.price(rw, batch * frames, length, bins, more)
        rows = self._rows(x, samples // piece * piece, piece, rw)
        check_count(frames * (length // piece), "pieces", 1 << 19)
        first = np.arange(frames, dtype=np.int64)[:, None] * (step // piece)
        picked = rw.op("Gather", rows, first + np.arange(length // piece), axis=1)
        flat = Reshape.to(picked, (dims[0], frames, length)).write(rw)
        made = rw.op("MatMul", flat, _waves(length, bins, taken))
        return rw.replace(node, [Reshape.to(made, (dims[0], frames, bins, 2)).write(rw)])

    def _rows(self, x: Value, used: int, piece: int, rw: Rewriter) -> Value:
        """Reshape the samples to pieces, without those after the last whole piece."""
        dims = x.dims()
        if used < x.size(1):
            x = rw.op("Slice", x, starts=(0,), ends=(used,), axes=(1,))
        return Reshape.to(x, (dims[0], used // piece, piece)).write(rw)
