"""Blocked weights: where each channel of a value lies when channels are stored in blocks, and weights to match.

A blocked value has the dims [N, Cp, H, W], Cp a multiple of the block size b; its memory runs n, c // b, h, w, c % b.
Its channels come in *segments*, each padded to whole blocks: one, or several after a Concat of pieces that do not end
at a block boundary. `Layout` holds the channels of each segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

Layout = tuple[int, ...]
"""Channels of each segment."""

Array = np.ndarray


def padded(channels: int, block: int) -> int:
    """The channels rounded up to whole blocks."""
    return -(-channels // block) * block


def canonical(segments: Iterable[int], block: int) -> Layout:
    """Segments, merged where one follows another without a gap."""
    found: list[int] = []
    for channels in segments:
        if found and found[-1] % block == 0:
            found[-1] += channels
        else:
            found.append(channels)
    return tuple(found)


def groups_in_one(group: int, channels: Iterable[int], block: int) -> int:
    """How many groups to merge into one, so that it has whole blocks of inputs and of outputs; all if impossible.

    The last one may have fewer, if its last block is the last of all: 19 groups of 8 channels are 10 blocks of 16.
    """
    for merge in range(1, group):
        whole = -(-group // merge) * merge
        if all(size * merge % block == 0 and size * whole == padded(size * group, block) for size in channels):
            return merge
    return group


def lanes(layout: Layout, block: int) -> int:
    """Physical channels of a layout."""
    found = 0
    for channels in layout:
        found -= -channels // block * block
    return found


def view(layout: Layout, block: int) -> Array:
    """The shape of the memory of a blocked value, [N, Cp / b, H, W, b], for `Reshape`."""
    return np.array([0, lanes(layout, block) // block, 0, 0, block], np.int64)


def whole(layout: Layout, block: int) -> Array:
    """The shape of a blocked value, [N, Cp, H, W], for `Reshape`."""
    return np.array([0, lanes(layout, block), 0, 0], np.int64)


def divided(layout: Layout, sizes: Iterable[int], block: int) -> list[Layout] | None:
    """The layouts of consecutive pieces of a value; None unless each begins at a block boundary."""
    pieces, rest = [], list(layout)
    for size in sizes:
        piece: list[int] = []
        missing = size
        while missing > 0 and rest:
            taken = min(rest[0], missing)
            if taken < rest[0] and taken % block:
                return None
            piece.append(taken)
            rest[:1] = [rest[0] - taken] if taken < rest[0] else []
            missing -= taken
        if missing:
            return None
        pieces.append(canonical(piece, block))
    return None if rest else pieces


@lru_cache(maxsize=256)
def positions(layout: Layout, block: int) -> Array:
    """The physical channel of each logical one."""
    found = []
    start = 0
    for channels in layout:
        found.append(np.arange(start, start + channels))
        start += padded(channels, block)
    return np.concatenate(found)


class Room:
    """Memory for many arrays, in large pieces once they are many bytes: the system backs these with large pages."""

    piece = 1 << 23

    def __init__(self) -> None:
        self._piece = np.empty(0, np.uint8)
        self._at = self._total = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialized array."""
        size = prod(shape) * dtype.itemsize
        self._total += size
        if size > self.piece // 2 or self._total < self.piece:
            return np.empty(shape, dtype)
        if self._at + size > self._piece.size:
            self._piece, self._at = np.empty(self.piece, np.uint8), 0
        found = self._piece[self._at : self._at + size].view(dtype).reshape(shape)
        self._at += -(-size // _ALIGNED) * _ALIGNED
        return found


_ALIGNED = 64


def both_blocked(weight: Array, inputs: Layout, outputs: Layout, block: int, room: Room | None = None) -> Array:
    """OIHWBiBo: input and output channels blocked, spread over the layouts of input and output.

    The flat index is (((o // b * Ip / b + i // b) * KH + kh) * KW + kw) * b * b + i % b * b + o % b.
    """
    shape = (lanes(outputs, block), lanes(inputs, block), *weight.shape[2:])
    cells = prod(weight.shape[2:])
    blocks = (shape[0] // block, shape[1] // block, cells, block, block)
    result = np.empty(blocks, weight.dtype) if room is None else room.array(blocks, weight.dtype)
    if shape != weight.shape:
        result[...] = 0
    for o, out_block, out_blocks, out_lanes in _runs(outputs, block):
        for i, in_block, in_blocks, in_lanes in _runs(inputs, block):
            part = weight[o : o + out_blocks * out_lanes, i : i + in_blocks * in_lanes]
            split = part.reshape(out_blocks, out_lanes, in_blocks, in_lanes, cells).transpose(0, 2, 4, 3, 1)
            to = (slice(out_block, out_block + out_blocks), slice(in_block, in_block + in_blocks))
            result[(*to, slice(None), slice(in_lanes), slice(out_lanes))] = split
    return result.reshape(shape)


def _runs(layout: Layout, block: int) -> Iterator[tuple[int, int, int, int]]:
    """The full blocks of each segment, then its partial block: first channel, first block, blocks, lanes of each."""
    channel = at = 0
    for channels in layout:
        full, rest = divmod(channels, block)
        if full:
            yield channel, at, full, block
        if rest:
            yield channel + full * block, at + full, 1, rest
        channel += channels
        at += full + bool(rest)


def grouped_blocked(weight: Array, block: int) -> Array:
    """OIHWBiBo for groups whose inputs and outputs are whole blocks."""
    outputs, inputs, height, width = weight.shape
    split = weight.reshape(outputs // block, block, inputs // block, block, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1)).reshape(weight.shape)


def outputs_blocked(weight: Array, outputs: Layout, block: int) -> Array:
    """OIHWBo: output channels blocked; for inputs in plain NCHW, and for depthwise convolutions.

    The flat index is ((o // b * I + i) * KH + kh) * KW * b + kw * b + o % b.
    """
    shape = (lanes(outputs, block), *weight.shape[1:])
    wide = weight
    if shape != weight.shape:
        wide = np.zeros(shape, weight.dtype)
        wide[positions(outputs, block)] = weight
    split = wide.reshape(shape[0] // block, block, *shape[1:])
    return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1)).reshape(shape)


def vector(values: Array, layout: Layout, block: int) -> Array:
    """Numbers, one per channel, spread over the lanes of a layout."""
    width = lanes(layout, block)
    if width == len(values):
        return values
    wide = np.zeros(width, values.dtype)
    wide[positions(layout, block)] = values
    return wide
