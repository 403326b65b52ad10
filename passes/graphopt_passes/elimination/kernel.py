"""Cells of a convolution's kernel that only ever see padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value


@dataclass(frozen=True, slots=True)
class KernelAxis:
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

    def cut(self, first: int, last: int) -> KernelAxis:
        """The window without the cells before and behind some."""
        before, after = first * self.dilation, (self.cells - 1 - last) * self.dilation
        dilation = self.dilation if last > first else 1
        cells = last - first + 1
        return replace(self, cells=cells, dilation=dilation, before=self.before - before, after=self.after - after)

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

    ops = ("Conv",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        weight, axes = node.operand(1), _axes(node)
        live = [axis.live() for axis in axes]
        smaller = [axis.cut(*cells) for axis, cells in zip(axes, live, strict=True)]
        if all(axis.cells == cut.cells for axis, cut in zip(axes, smaller, strict=True)):
            raise Decline
        array = weight.array()
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise Decline("the weight {} is not finite", weight.name)
        kept = array[(slice(None), slice(None), *(slice(first, last + 1) for first, last in live))]
        attrs = {
            **node.attrs,
            "kernel_shape": kept.shape[2:],
            "pads": (*(axis.before for axis in smaller), *(axis.after for axis in smaller)),
            "dilations": tuple(axis.dilation for axis in smaller),
        }
        made = rw.constant(np.ascontiguousarray(kept), like=weight)
        return rw.replace(node, [rw.op("Conv", node.inputs[0], made, *node.inputs[2:], **attrs)])


def _axes(node: Node) -> list[KernelAxis]:
    """The spatial axes of a convolution with padding that is stated."""
    pads = node.attr("pads")
    if not pads or not any(pads) or node.attr("auto_pad", "NOTSET") != "NOTSET":
        raise Decline
    sizes, kernel = (_spatial(node.operand(index)) for index in (0, 1))
    rank = len(sizes)
    strides, dilations = (node.attr(name) or (1,) * rank for name in ("strides", "dilations"))
    lists = sizes, kernel, strides, dilations, pads[:rank], pads[rank:]
    if any(len(each) != rank for each in lists) or min(kernel) < 1:
        raise Decline
    return [KernelAxis(*axis) for axis in zip(*lists, strict=True)]


def _spatial(value: Value) -> list[int]:
    """The sizes of an image or kernel, without its batch and channels."""
    sizes = [size for size in value.dims()[2:] if isinstance(size, int)]
    if not sizes or len(sizes) != len(value.dims()) - 2:
        raise Decline  # no near miss: hardly a convolution of an image of unknown size has such cells
    return sizes
