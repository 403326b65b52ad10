"""`Gather` at constant positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

MOST_BYTES = 1 << 20
"""Most bytes of a list of positions; longer ones are tables, not selections."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Elements at constant positions along one axis.

    Attributes:
        x: the data.
        axis: the axis, from the front.
        positions: an int64 array of any rank, whose axes replace `axis` in the result; negative ones count from the
            end.
    """

    x: Value
    axis: int
    positions: np.ndarray

    @classmethod
    def of(cls, node: Node) -> Gather:
        """Read a `Gather`.

        Raises:
            Decline: it is none, its positions are not constant, or the rank is not known.
        """
        if node.op != "Gather":
            raise Decline
        x, indices = node.operand(0), node.operand(1)
        array = indices.const(MOST_BYTES)
        if array is None:
            raise Decline("{} is not constant", indices.name)
        return cls(x, x.axis(node.attr("axis", 0)), array.astype(np.int64))

    def from_front(self) -> np.ndarray:
        """The positions counted from the front.

        Raises:
            Decline: the size of the axis is not known, or a position is out of range.
        """
        size = self.x.size(self.axis)
        if ((self.positions < -size) | (self.positions >= size)).any():
            raise Decline("an index is out of range for axis {} of {}", self.axis, self.x.name)
        return np.where(self.positions < 0, self.positions + size, self.positions)

    def then(self, second: Gather) -> Gather:
        """The composition with a second `Gather` of the result.

        Raises:
            Decline: the second selects along another axis than those of the positions, or out of range, or there would
                be too many positions to list.
        """
        among = second.axis - self.axis
        if not 0 <= among < self.positions.ndim:
            raise Decline("they gather along unrelated axes, {} and {}", self.axis, second.axis)
        count = self.positions.size // max(self.positions.shape[among], 1) * second.positions.size
        if count > MOST_BYTES // np.dtype(np.int64).itemsize:
            raise Decline("{} positions are too many for one list", count)
        try:
            return replace(self, positions=self.positions.take(second.positions, axis=among))
        except IndexError:
            raise Decline("an index is out of range for axis {}", second.axis) from None

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator."""
        return to.op("Gather", self.x, np.asarray(self.positions, np.int64), axis=self.axis)
