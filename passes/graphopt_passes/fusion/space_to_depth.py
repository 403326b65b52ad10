"""Pixels moved to channels, or channels to pixels, by slices or by reshapes around a transpose."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.match import Attr, Match, OpBuilder, Pattern
from graphopt.operators import Gather, Slice
from graphopt.operators.slice import FARTHEST
from graphopt.rewrite import Decline, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import check_count

_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})
"""Element types for which runtimes implement both operators."""


class ConvertSlicesToSpaceToDepth(PatternRule):
    """Replace the `Concat` of four `Slice` of every second row and column with one `SpaceToDepth`.

    Known sizes must be even; unknown ones are even, since the four parts have the same size. Where the slices are not
    in row-major order, a `Gather` permutes the channels, which a convolution after it absorbs.
    """

    opsets = "10-"
    peers = {"onnxruntime": "SliceConcatToSpaceToDepthFusion"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        parts = (op.Slice(x, ..., _bind=f"part{number}") for number in range(4))
        return op.Concat(*parts, axis=Attr(among=(1, -3)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        x = m.x
        if x.rank != 4 or x.dtype not in _TYPES:
            raise Decline("{} is not known to be a float image", x.name)
        blocks = [_block(Slice.of(cut)) for cut in (m.part0, m.part1, m.part2, m.part3)]
        if sorted(blocks) != [0, 1, 2, 3]:
            raise Decline("the parts of {} are not those of every second row and column", x.name)
        made = rw.op("SpaceToDepth", x, blocksize=2)
        if blocks == [0, 1, 2, 3]:
            return made
        check_count(x.size(1))
        order = np.arange(4 * x.size(1)).reshape(4, -1)[blocks]
        return Gather(made, 1, order.reshape(-1)).write(rw)


def _block(part: Slice) -> int:
    """The pixel of each 2x2 block that a slice takes, in row-major order."""
    block = 0
    for axis in (2, 3):
        size, cut = part.x.dims()[axis], part.along(axis)
        if isinstance(size, int):
            fits, positions = size % 2 == 0, cut.positions(size)
        else:
            fits, positions = cut.start >= 0 and cut.end in FARTHEST, range(cut.start, cut.end, cut.step)
            size = cut.end
        if not fits or len(part.cuts) != 2 or positions not in (range(0, size, 2), range(1, size, 2)):
            raise Decline("the parts of {} are not those of every second row and column", part.x.name)
        block = 2 * block + positions.start
    return block


class PixelShuffle(PatternRule):
    """An image that is reshaped to six axes, transposed and reshaped to an image again.

    Attributes:
        blocks_first: the permutation of the six axes if the position in a block comes before the channel.
        channels_first: the permutation if it comes after the channel.
    """

    opsets = "5-"
    blocks_first: ClassVar[tuple[int, ...]]
    channels_first: ClassVar[tuple[int, ...]]

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """The inferred shapes are compared, so the shape operands may be written in any form."""
        perm = Attr("perm", among={self.blocks_first, self.channels_first})
        return op.Reshape(op.Transpose(op.Reshape(x, ..., _bind="split"), perm=perm), ..., _bind="join")

    def sizes(self, m: Match) -> list[tuple[int, ...]]:
        """The sizes before, between and after, without the batch, which is the same for images of equal size."""
        if m.x.dtype not in _TYPES:
            raise Decline("{} is not known to hold floats", m.x.name)
        sizes = [_image(value, rank) for value, rank in ((m.x, 4), (m.split.result, 6), (m.join.result, 4))]
        if len({prod(each) for each in sizes}) > 1:
            raise Decline("the images have different sizes, {} and {} elements", prod(sizes[0]), prod(sizes[1]))
        return sizes


def _image(value: Value, rank: int) -> tuple[int, ...]:
    """All sizes except the batch."""
    dims = value.dims()
    known = tuple(dim for dim in dims[1:] if isinstance(dim, int) and dim > 0)
    if len(dims) != rank or len(known) != rank - 1:
        raise Decline("the sizes of {} are not known", value.name)
    return known


class ConvertReshapesToDepthToSpace(PixelShuffle):
    """Replace `Reshape`, `Transpose` and `Reshape` that move channels to pixels with one `DepthToSpace`.

    Pixel shuffles are exported like this, in either order of channels. All sizes except the batch must be known.
    Measured on one thread, it takes 0.2 to 0.5 of the time.
    """

    blocks_first, channels_first = (0, 3, 4, 1, 5, 2), (0, 1, 4, 2, 5, 3)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        (_, height, width), between, after = self.sizes(m)
        if m.perm == self.blocks_first:
            mode, size, channels = "DCR", between[0], between[2]
            expected = (size, size, channels, height, width)
        else:
            mode, size, channels = "CRD", between[1], between[0]
            expected = (channels, size, size, height, width)
        if between != expected or after != (channels, height * size, width * size):
            raise Decline("{} is not rearranged into square blocks of pixels", m.x.name)
        needed = mode != "DCR" or rw.graph.has("DepthToSpace", "mode")
        return rw.op("DepthToSpace", m.x, blocksize=size, mode=mode if needed else None)


class ConvertReshapesToSpaceToDepth(PixelShuffle):
    """Replace `Reshape`, `Transpose` and `Reshape` that move pixels to channels with one `SpaceToDepth`.

    Where the pixels of one channel stay together, a `Gather` permutes the channels, which a convolution after it
    absorbs; from opset 28 the operator has a mode for that. All sizes except the batch must be known. Measured on one
    thread, `SpaceToDepth` takes a tenth of the time.
    """

    blocks_first, channels_first = (0, 3, 5, 1, 2, 4), (0, 1, 3, 5, 2, 4)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        (channels, height, width), between, after = self.sizes(m)
        size = between[2]
        if between != (channels, height // size, size, width // size, size):
            raise Decline("{} is not split into square blocks of pixels", m.x.name)
        if after != (channels * size * size, height // size, width // size):
            raise Decline("the blocks of {} do not become channels", m.x.name)
        apart = m.perm == self.channels_first and channels > 1
        if apart and rw.graph.has("SpaceToDepth", "mode"):
            return rw.op("SpaceToDepth", m.x, blocksize=size, mode="CRD")
        made = rw.op("SpaceToDepth", m.x, blocksize=size)
        if not apart:
            return made
        check_count(channels * size * size)
        order = np.arange(channels * size * size).reshape(size * size, channels).T
        return Gather(made, 1, order.reshape(-1)).write(rw)
