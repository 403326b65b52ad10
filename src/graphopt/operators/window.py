"""Windows of convolutions and pools: explicit or automatic padding, optional strides and dilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.records import dataclass

SETTINGS = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
"""Attributes of a window."""


def settings_of(node: Node) -> dict[str, Any]:
    """The window attributes of an operator, without ignored `pads`: a pool may have them besides `auto_pad`."""
    ignored = node.attr("auto_pad", "NOTSET") != "NOTSET"
    return {name: None if name == "pads" and ignored else node.attrs.get(name) for name in SETTINGS}


@dataclass(frozen=True, slots=True)
class Window:
    """A window along the spatial axes; each tuple has one number per axis.

    Attributes:
        kernel: size of the window.
        strides: strides.
        dilations: dilations.
        before: padding at the start; zeros if it is automatic.
        after: padding at the end; zeros if it is automatic.
        same: `SAME_UPPER` or `SAME_LOWER` if the padding is automatic, else empty.
    """

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    same: str

    @classmethod
    def of(cls, node: Node, kernel: Sequence[Dim]) -> Window:
        """Read the window of an operator.

        Args:
            node: the operator.
            kernel: the size of its window; for a convolution, that of its weight.

        Raises:
            Decline: its lists, or its image, do not match the axes of the kernel.
        """
        count, auto = len(kernel), node.attr("auto_pad", "NOTSET")
        strides, dilations = (tuple(node.attr(name) or (1,) * count) for name in ("strides", "dilations"))
        pads = tuple((node.attr("pads") if auto == "NOTSET" else None) or (0,) * (2 * count))
        if not count or not len(strides) == len(dilations) == count or len(pads) != 2 * count:
            raise Decline("the strides, dilations or pads of {} do not match the rank of its kernel", node.result.name)
        if node.operand(0).rank not in (None, count + 2):
            raise Decline("{} has rank {}, expected {}", node.operand(0).name, node.operand(0).rank, count + 2)
        same = auto if auto.startswith("SAME") else ""
        return cls(tuple(kernel), strides, dilations, pads[:count], pads[count:], same)

    def padding(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The padding at the start and the end, if it is the same in every run.

        Raises:
            Decline: it depends on sizes.
        """
        if not self.same:
            return self.before, self.after
        sizes = [size for size in self.kernel if isinstance(size, int)]
        if any(step != 1 for step in self.strides) or len(sizes) < len(self.kernel):
            raise Decline("auto_pad is {} and the strides are {}, expected 1", self.same, self.strides)
        total = [apart * (size - 1) for size, apart in zip(sizes, self.dilations, strict=True)]
        less, more = tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)
        return (less, more) if self.same == "SAME_UPPER" else (more, less)


@dataclass(frozen=True, slots=True)
class KernelAxis:
    """A window along one axis.

    Attributes:
        size: size of the image.
        cells: size of the kernel.
        stride: stride of the window.
        dilation: dilation of the kernel.
        before: padding at the start.
        after: padding at the end.
    """

    size: int
    cells: int
    stride: int
    dilation: int
    before: int
    after: int

    @classmethod
    def of(cls, node: Node) -> list[KernelAxis]:
        """The spatial axes of a convolution with explicit padding.

        Raises:
            Decline: it has no padding, or a size is not known.
        """
        pads = node.attr("pads")
        if not pads or not any(pads) or node.attr("auto_pad", "NOTSET") != "NOTSET":
            raise Decline
        sizes, kernel = (_spatial(node.operand(index)) for index in (0, 1))
        rank = len(sizes)
        strides, dilations = (node.attr(name) or (1,) * rank for name in ("strides", "dilations"))
        lists = sizes, kernel, strides, dilations, pads[:rank], pads[rank:]
        if any(len(each) != rank for each in lists) or min(kernel) < 1:
            raise Decline
        return [cls(*axis) for axis in zip(*lists, strict=True)]

    def live(self) -> tuple[int, int]:
        """The first and last kernel element over the image; an end is kept if cropping it needs negative padding."""
        if self.size >= (self.cells - 1) * self.dilation + self.stride:
            return 0, self.cells - 1  # some window lies entirely inside the image
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
        """The window cropped to the kernel elements from `first` to `last`."""
        before, after = first * self.dilation, (self.cells - 1 - last) * self.dilation
        dilation = self.dilation if last > first else 1
        cells = last - first + 1
        return replace(self, cells=cells, dilation=dilation, before=self.before - before, after=self.after - after)

    def _sees(self, cell: int) -> bool:
        """Whether a kernel element is over the image at any position: checks the first one after the padding."""
        span = (self.cells - 1) * self.dilation + 1
        steps = (self.size + self.before + self.after - span) // self.stride + 1
        offset = cell * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        return first < steps and first * self.stride + offset < self.size


def _spatial(value: Value) -> list[int]:
    """The sizes of an image or kernel, without its batch and channels."""
    sizes = [size for size in value.dims()[2:] if isinstance(size, int)]
    if not sizes or len(sizes) != len(value.dims()) - 2:
        raise Decline  # no near miss: images of unknown size are seldom that small
    return sizes
