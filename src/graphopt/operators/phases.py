"""`ConvTranspose` decomposed into convolutions, one per position within the stride.

With stride s, y[s * m + q] = sum over j of x[m - j] * w[s * j + q]: for each position q within the stride, this is a
convolution with every s-th tap of the kernel. If s divides the kernel size, they form one convolution with s * s times
as many outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators.window import Window
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a transposed convolution as a convolution.

    Attributes:
        stride: results per position of the convolution.
        kernel: taps of the transposed convolution.
        taps: taps of the convolution.
        first: the multiple of the stride in which the results begin.
        after: padding at its end.
        skip: results cropped at the start.
        tail: results cropped at the end.
        more: positions of the convolution minus those of the input.
    """

    stride: int
    kernel: int
    taps: int
    first: int
    after: int
    skip: int
    tail: int
    more: int

    @classmethod
    def of(cls, kernel: int, stride: int, pads: tuple[int, int], extra: int) -> Axis:
        """The axis of a kernel with a stride, pads at both ends, and `output_padding`."""
        begin, end = pads
        taps = -(-kernel // stride)
        # The last position has the fewest taps, and its convolution must not have negative padding.
        first = min(begin // stride, (kernel - stride) // stride)
        after = max((extra + kernel - 1 - end) // stride, 0)
        skip, more = begin - first * stride, after - first
        tail = stride * (more + 1) - skip - (extra + kernel - begin - end)
        return cls(stride, kernel, taps, first, after, skip, tail, more)

    def taps_at(self, place: int) -> int:
        """Number of taps for a position within the stride."""
        return -(-(self.kernel - place) // self.stride)

    def size(self, source: int) -> int:
        """The size of the result for an input of size `source`."""
        return self.stride * (source + self.more) - self.skip - self.tail


@dataclass(frozen=True, slots=True)
class Phases:
    """A transposed convolution as convolutions.

    Attributes:
        rows: its vertical axis.
        columns: its horizontal axis.
        height: height of the input; None if it is not fixed.
        width: width of the input; None if it is not fixed.
    """

    rows: Axis
    columns: Axis
    height: int | None = None
    width: int | None = None

    @classmethod
    def of(cls, node: Node, kernel: Sequence[int]) -> Phases:
        """Read a `ConvTranspose`, of an input of any size.

        Args:
            node: the operator.
            kernel: height and width of its kernel.

        Raises:
            Decline: it has groups, implicit padding, or settings that the decomposition does not support.
        """
        if node.attr("group", 1) != 1:
            raise Decline("it has {} groups", node.attr("group"))
        window = Window.of(node, kernel)
        if window.dilations != (1, 1):
            raise Decline("its dilations are {}", window.dilations)
        if window.same:
            raise Decline("auto_pad is {}", window.same)
        if node.attr("output_shape"):
            raise Decline("its pads follow from its output_shape")
        if min(window.before + window.after) < 0:
            raise Decline("its pads {} are negative", window.before + window.after)
        if any(stride > size for stride, size in zip(window.strides, kernel, strict=True)):
            raise Decline("its strides {} are larger than its kernel", window.strides)
        extra = tuple(node.attr("output_padding") or (0, 0))
        pads = list(zip(window.before, window.after, strict=True))
        rows, columns = (Axis.of(kernel[at], window.strides[at], pads[at], extra[at]) for at in (0, 1))
        return cls(rows, columns)

    @property
    def places(self) -> list[tuple[int, int]]:
        """The positions within the stride, in row-major order."""
        return [(row, column) for row in range(self.rows.stride) for column in range(self.columns.stride)]

    @property
    def kernels(self) -> list[tuple[int, int]]:
        """Height and width of the kernel of each convolution: one for all positions, or one for each.

        Padding with zero taps would turn an infinity into NaN.
        """
        apart = [(self.rows.taps_at(row), self.columns.taps_at(column)) for row, column in self.places]
        return apart if len(set(apart)) > 1 else apart[:1]

    @property
    def positions(self) -> tuple[int | None, int | None]:
        """Height and width of the convolutions' results."""
        height = None if self.height is None else self.height + self.rows.more
        return height, None if self.width is None else self.width + self.columns.more

    def weight(self, weight: np.ndarray, at: int) -> np.ndarray:
        """Weights of a convolution, [K, C, ...] for one position, [places * K, C, ...] for all, from [C, K, kh, kw]."""
        rows, columns = self.rows, self.columns
        inputs, outputs = weight.shape[:2]
        if len(self.kernels) > 1:
            row, column = self.places[at]
            taps = weight[:, :, row :: rows.stride, column :: columns.stride]
            return np.ascontiguousarray(taps[:, :, ::-1, ::-1].swapaxes(0, 1))
        split = weight.reshape(inputs, outputs, rows.taps, rows.stride, columns.taps, columns.stride)
        turned = split[:, :, ::-1, :, ::-1].transpose(3, 5, 1, 0, 2, 4)
        return np.ascontiguousarray(turned).reshape(-1, inputs, rows.taps, columns.taps)
