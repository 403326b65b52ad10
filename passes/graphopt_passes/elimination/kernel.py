"""Cells of a convolution's kernel that only ever see padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter


@dataclass(frozen=True, slots=True)
class Axis:
    """A window along one axis.

    Attributes:
        size: of the image.
        cells: of the kernel.
        stride: by how much the window moves.
        dilation: distance of neighbouring cells.
        before: padding in front.
        after: padding behind.
    """

    size: int
    cells: int
    stride: int
    dilation: int
    before: int
    after: int

    def live(self) -> tuple[int, int]:
        """The first and the last cell that see the image; all of them where the smaller kernel would have to crop."""
        seen = [cell for cell in range(self.cells) if self._sees(cell)]
        if not seen:
            return 0, self.cells - 1
        first, last = seen[0], seen[-1]
        if self.before < first * self.dilation:
            first = 0
        if self.after < (self.cells - 1 - last) * self.dilation:
            last = self.cells - 1
        return first, last

    def _sees(self, cell: int) -> bool:
        """Whether a cell is over the image anywhere: where it first comes out of the padding in front."""
        span = (self.cells - 1) * self.dilation + 1
        steps = (self.size + self.before + self.after - span) // self.stride + 1
        offset = cell * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        return first < steps and first * self.stride + offset < self.size


class EliminatePaddedKernelCells(OpRule):
    """Leave out the border cells of a `Conv`'s kernel that lie in the padding wherever the window stands.

    A 3x3 kernel whose cells are 24 apart, over an image of 14x14, sees the image with its middle cell only: it is a 1x1
    kernel. Networks for segmentation have these when their input is small.
    """

    name = "eliminate_padded_kernel_cells"
    ops = ("Conv",)
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Make the kernel smaller, and the padding with it."""
        weight = node.input(1)
        axes = _axes(node)
        if axes is None or weight is None:
            return None
        live = [axis.live() for axis in axes]
        if all(axis.cells == last - first + 1 for axis, (first, last) in zip(axes, live, strict=True)):
            return None
        array = weight.const()
        if array is None:
            return Mismatch("the weight {} is not constant", weight.name)
        kept = array[(slice(None), slice(None), *(slice(first, last + 1) for first, last in live))]
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            return Mismatch("the weight {} is not finite", weight.name)
        before = [axis.before - first * axis.dilation for axis, (first, _) in zip(axes, live, strict=True)]
        after = [
            axis.after - (axis.cells - 1 - last) * axis.dilation for axis, (_, last) in zip(axes, live, strict=True)
        ]
        kernel = kept.shape[2:]
        attrs = {
            **node.attrs,
            "kernel_shape": kernel,
            "pads": (*before, *after),
            "dilations": tuple(axis.dilation if cells > 1 else 1 for axis, cells in zip(axes, kernel, strict=True)),
        }
        made = rw.constant(np.ascontiguousarray(kept), like=weight)
        return rw.replace(node, [rw.op("Conv", node.inputs[0], made, *node.inputs[2:], **attrs)])


def _axes(node: Node) -> list[Axis] | None:
    """The windows of a convolution along each axis, None where something is not known or there is no padding."""
    x, weight = node.input(0), node.input(1)
    pads = node.attr("pads")
    if x is None or weight is None or not pads or not any(pads) or str(node.attr("auto_pad", "NOTSET")) != "NOTSET":
        return None
    sizes, kernel = _spatial(x), _spatial(weight)
    if sizes is None or kernel is None or not len(sizes) == len(kernel) == len(pads) // 2 or min(kernel) < 1:
        return None
    rank = len(sizes)
    ones = (1,) * rank
    strides, dilations = node.attr("strides") or ones, node.attr("dilations") or ones
    return [
        Axis(size, cells, strides[at], dilations[at], pads[at], pads[at + rank])
        for at, (size, cells) in enumerate(zip(sizes, kernel, strict=True))
    ]


def _spatial(value: Value) -> list[int] | None:
    shape = value.shape
    if shape is None or len(shape) < 3:
        return None
    sizes = [dim for dim in shape[2:] if isinstance(dim, int)]
    return sizes if len(sizes) == len(shape) - 2 else None
