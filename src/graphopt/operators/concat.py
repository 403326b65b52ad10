"""`Concat`: parts joined along one axis, and the position of each in the result."""

from __future__ import annotations

from collections.abc import Collection

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Concat:
    """Values joined along one axis.

    Attributes:
        parts: the values, in order.
        axis: the axis, from the front.
    """

    parts: tuple[Value, ...]
    axis: int

    @classmethod
    def of(cls, node: Node) -> Concat:
        """Read a `Concat`.

        Raises:
            Decline: it is none, or the rank is not known.
        """
        if node.op != "Concat":
            raise Decline
        parts = tuple([node.operand(index) for index in range(len(node.inputs))])
        return cls(parts, node.result.axis(node.attr("axis", 1)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the parts along the axis, up to the first unknown one."""
        sizes: list[int] = []
        for part in self.parts:
            size = part.dim(self.axis)
            if not isinstance(size, int):
                break
            sizes.append(size)
        return tuple(sizes)

    def holder(self, positions: Collection[int]) -> tuple[Value, int]:
        """The part that contains all given positions of the axis, and its start.

        Args:
            positions: at least one position in the result, counted from the front.

        Raises:
            Decline: they are not known to be in one part.
        """
        first, last, start = min(positions), max(positions), 0
        for part, size in zip(self.parts, self.sizes, strict=False):
            if start <= first and last < start + size:
                return part, start
            start += size
        raise Decline("positions {} to {} are not known to lie in one of the inputs", int(first), int(last))
