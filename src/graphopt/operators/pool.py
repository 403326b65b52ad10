"""Pools with windows: padding stated or worked out, strides and dilations that may be left out."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.window import Window
from graphopt.records import dataclass

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_READ = POOLS | {"com.microsoft::QLinearAveragePool"}


@dataclass(frozen=True, slots=True)
class Pool:
    """One number in place of all within a window that moves over the spatial axes.

    Attributes:
        op: the operator.
        x: what is pooled.
        kernel: how many elements the window has along each spatial axis.
        strides: by how much it moves.
        dilations: how far its elements are apart.
        before: padding in front of each axis; zeros where it is worked out.
        after: padding behind it; zeros where it is worked out.
        same: `SAME_UPPER` or `SAME_LOWER` where the padding is worked out, else empty.
        ceil: whether the last window may end behind the padding.
        counts_padding: whether an average divides by the padding, too.
    """

    op: str
    x: Value
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    same: str = ""
    ceil: bool = False
    counts_padding: bool = False

    @classmethod
    def of(cls, node: Node) -> Pool:
        """Read a pool.

        Raises:
            Decline: it is none, its indices are used, or its lists have not one number for each axis of its kernel.
        """
        if node.op not in _READ:
            raise Decline
        indices = node.output(1)
        if indices is not None and indices.uses:
            raise Decline("indices of {} are used", node.result.name)
        kernel = tuple(node.attr("kernel_shape") or ())
        window = Window.of(node, kernel)
        ceil, counts = bool(node.attr("ceil_mode", 0)), bool(node.attr("count_include_pad", 0))
        return cls(
            node.op, node.operand(0), kernel, window.strides, window.dilations, window.before, window.after,
            window.same, ceil, counts,
        )  # fmt: skip

    @property
    def reach(self) -> tuple[int, ...]:
        """How many positions of each axis the window spans."""
        return tuple((size - 1) * apart + 1 for size, apart in zip(self.kernel, self.dilations, strict=True))

    def check_fits(self) -> None:
        """See that a window fits into the padded image in every run, one whose size is not known having one element.

        What a pool of the runtime makes of smaller images is no convolution: nothing, or the mean of what is there.

        Raises:
            Decline: it may not.
        """
        dims = self.x.dims()[2:]
        pads = [a + b for a, b in zip(self.before, self.after, strict=True)]
        for size, reach, padded in zip(dims, self.reach, pads, strict=True):
            if not self.same and reach > padded + (size if isinstance(size, int) else 1):
                raise Decline("{} may be smaller than a window", self.x.name)
