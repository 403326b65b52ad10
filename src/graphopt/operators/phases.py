"""`ConvTranspose` as convolutions of all results within a stride.

With a stride of s, result f = s * m + q of an axis is the sum over j of x[m - j] * w[s * j + q]: for each q, the place
within the stride, a convolution with every s-th tap of the kernel. Where s divides the kernel they are one convolution
with s * s times as many outputs.
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
        stride: results for each position of the convolution.
        kernel: taps of the transposed convolution.
        taps: taps of the convolution.
        first: the multiple of the stride that the results begin in.
        after: its pad at the end.
        skip: results that are cut off at the beginning.
        tail: results that are cut off at the end.
        more: positions of the convolution, less those of the input.
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
        # The last place has the fewest taps, and no pad of its convolution is negative.
        first = min(begin // stride, (kernel - stride) // stride)
        after = max((extra + kernel - 1 - end) // stride, 0)
        skip, more = begin - first * stride, after - first
        tail = stride * (more + 1) - skip - (extra + kernel - begin - end)
        return cls(stride, kernel, taps, first, after, skip, tail, more)

    def taps_at(self, place: int) -> int:
        """Taps of the kernel for one place within the stride."""
        return -(-(self.kernel - place) // self.stride)

    def size(self, source: int) -> int:
        """How many results it has for so many positions of the input."""
        return self.stride * (source + self.more) - self.skip - self.tail


@dataclass(frozen=True, slots=True)
class Phases:
    """A transposed convolution as convolutions.

    Attributes:
        rows: its vertical axis.
        columns: its horizontal axis.
        height: of the input; None when it is not fixed.
        width: of the input; None when it is not fixed.
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
            Decline: it has groups, pads that are worked out, or others that such convolutions do not have.
        """
        if node.attr("group", 1) != 1:
            raise Decline("it has {} groups", node.attr("group"))
        window = Window.of(node, kernel)
        if window.dilations != (1, 1):
            raise Decline("its dilations are {}", window.dilations)
        if window.same:
            raise Decline("its pads are {}", window.same)
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
        """The places within the stride, by rows."""
        return [(row, column) for row in range(self.rows.stride) for column in range(self.columns.stride)]

    @property
    def kernels(self) -> list[tuple[int, int]]:
        """Height and width of the kernel of each convolution: one for all places, or one for each.

        Taps of zero would do as well, but an infinity would become NaN there.
        """
        apart = [(self.rows.taps_at(row), self.columns.taps_at(column)) for row, column in self.places]
        return apart if len(set(apart)) > 1 else apart[:1]

    @property
    def positions(self) -> tuple[int | None, int | None]:
        """Height and width of what the convolutions compute."""
        height = None if self.height is None else self.height + self.rows.more
        return height, None if self.width is None else self.width + self.columns.more

    def weight(self, weight: np.ndarray, at: int) -> np.ndarray:
        """Weights of a convolution, [K, C, ...] for one place, [places * K, C, ...] for all, from [C, K, kh, kw]."""
        rows, columns = self.rows, self.columns
        inputs, outputs = weight.shape[:2]
        if len(self.kernels) > 1:
            row, column = self.places[at]
            taps = weight[:, :, row :: rows.stride, column :: columns.stride]
            return np.ascontiguousarray(taps[:, :, ::-1, ::-1].swapaxes(0, 1))
        split = weight.reshape(inputs, outputs, rows.taps, rows.stride, columns.taps, columns.stride)
        turned = split[:, :, ::-1, :, ::-1].transpose(3, 5, 1, 0, 2, 4)
        return np.ascontiguousarray(turned).reshape(-1, inputs, rows.taps, columns.taps)
