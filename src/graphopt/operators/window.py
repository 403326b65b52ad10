"""Windows of convolutions and pools: padding stated or worked out, strides and dilations that may be left out."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import Decline
from graphopt.ir import Dim, Node
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves over the spatial axes, each list with a number for each of them.

    Attributes:
        kernel: how many elements the window has.
        strides: by how much it moves.
        dilations: how far its elements are apart.
        before: padding in front; zeros where it is worked out.
        after: padding behind; zeros where it is worked out.
        same: `SAME_UPPER` or `SAME_LOWER` where the padding is worked out, else empty.
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
            kernel: the size of its window, which a convolution has from its weight.

        Raises:
            Decline: its lists have not one number for each axis of the kernel.
        """
        count, auto = len(kernel), node.attr("auto_pad", "NOTSET")
        strides, dilations = (tuple(node.attr(name) or (1,) * count) for name in ("strides", "dilations"))
        pads = tuple((node.attr("pads") if auto == "NOTSET" else None) or (0,) * (2 * count))
        if not count or not len(strides) == len(dilations) == count or len(pads) != 2 * count:
            raise Decline("the lists of {} do not fit its kernel", node.result.name)
        same = auto if auto.startswith("SAME") else ""
        return cls(tuple(kernel), strides, dilations, pads[:count], pads[count:], same)

    def padding(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What is padded in front and behind, in every run.

        Raises:
            Decline: that depends on sizes.
        """
        if not self.same:
            return self.before, self.after
        sizes = [size for size in self.kernel if isinstance(size, int)]
        if any(step != 1 for step in self.strides) or len(sizes) < len(self.kernel):
            raise Decline("auto_pad is {} and the strides {}", self.same, self.strides)
        total = [apart * (size - 1) for size, apart in zip(sizes, self.dilations, strict=True)]
        less, more = tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)
        return (less, more) if self.same == "SAME_UPPER" else (more, less)
