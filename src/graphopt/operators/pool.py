"""Pools with windows: explicit or automatic padding, optional strides and dilations."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.window import Window
from graphopt.records import dataclass

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_READ = POOLS | {"com.microsoft::QLinearAveragePool"}


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool over windows along the spatial axes.

    Attributes:
        op: the operator.
        x: the data.
        kernel: size of the window by spatial axis.
        strides: strides by spatial axis.
        dilations: dilations by spatial axis.
        before: padding at the start of each axis; zeros if it is automatic.
        after: padding at the end of each axis; zeros if it is automatic.
        same: `SAME_UPPER` or `SAME_LOWER` if the padding is automatic, else empty.
        ceil: whether the last window may exceed the padding.
        counts_padding: whether padding counts in the divisor of an average.
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
            Decline: it is none, its indices are used, or its lists do not match the axes of its kernel.
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
        """The extent of the dilated window along each axis."""
        return tuple((size - 1) * apart + 1 for size, apart in zip(self.kernel, self.dilations, strict=True))

    def check_fits(self) -> None:
        """Check that the window fits into the padded image in every run; unknown sizes are assumed to be at least 1.

        For smaller images, a pool of the runtime is no convolution: it is empty, or the mean of the present elements.

        Raises:
            Decline: it may not fit.
        """
        dims = self.x.dims()[2:]
        pads = [a + b for a, b in zip(self.before, self.after, strict=True)]
        for size, reach, padded in zip(dims, self.reach, pads, strict=True):
            if not self.same and reach > padded + (size if isinstance(size, int) else 1):
                raise Decline("{} may be smaller than the pooling window", self.x.name)
