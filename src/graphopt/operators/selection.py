"""Selections: elements at constant positions along one axis, by `Slice`, `Gather` or `Split`."""

from __future__ import annotations

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.operators.gather import Gather
from graphopt.operators.slice import Cut, Slice
from graphopt.operators.split import Split
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Elements at constant positions along one axis of a known size; the axis stays.

    Attributes:
        x: the data.
        axis: the axis, from the front.
        positions: the positions, counted from the front, in order of selection: a range, or an int64 array.
    """

    x: Value
    axis: int
    positions: range | np.ndarray

    @classmethod
    def all_of(cls, x: Value, axis: int) -> Selection:
        """The selection of every position of an axis.

        Raises:
            Decline: its size is not known.
        """
        return cls(x, axis, range(x.size(axis)))

    @classmethod
    def at(cls, x: Value, axis: int, positions: np.ndarray) -> Selection:
        """The selection of listed positions, stored as a range if they are consecutive."""
        start = int(positions[0]) if positions.size else 0
        run = range(start, start + positions.size)
        return cls(x, axis, run if np.array_equal(positions, run) else positions)

    @classmethod
    def one(cls, x: Value, axis: int, position: int) -> Selection:
        """The selection of a single position, which counts from the end if it is negative.

        Raises:
            Decline: the size of the axis is not known, or the position is out of range.
        """
        size = x.size(axis)
        if not -size <= position < size:
            raise Decline("an index is out of range for axis {} of {}", axis, x.name)
        position %= size
        return cls(x, axis, range(position, position + 1))

    @classmethod
    def of(cls, value: Value, reader: Node | None = None) -> Selection:
        """Read the producer of a value: a `Slice` of one axis, a `Gather` at a list of positions, or a `Split`.

        Args:
            value: the value.
            reader: a reader of the value; the producer must be in the same graph.

        Raises:
            Decline: without a reason for another producer; if a position or a size is not known.
        """
        node = value.producer
        if node is None or (reader is not None and node.graph is not reader.graph):
            raise Decline
        if node.op == "Slice":
            return cls._of_slice(Slice.of(node))
        if node.op == "Split":
            return cls(*Split.part(node, value.index))
        gather = Gather.of(node)
        if gather.positions.ndim != 1:
            raise Decline
        return cls.at(gather.x, gather.axis, gather.from_front())

    @classmethod
    def _of_slice(cls, sliced: Slice) -> Selection:
        if len(sliced.cuts) != 1:
            raise Decline
        ((axis, cut),) = sliced.cuts.items()
        return cls(sliced.x, axis, cut.positions(sliced.x.size(axis)))

    def run(self) -> range:
        """The positions as a range of consecutive numbers.

        Raises:
            Decline: they are not consecutive, or there are none.
        """
        positions = self.positions
        if not len(positions):
            raise Decline("no elements are selected along axis {} of {}", self.axis, self.x.name)
        if not isinstance(positions, range) or (positions.step != 1 and len(positions) > 1):
            raise Decline("the selection along axis {} of {} is not contiguous", self.axis, self.x.name)
        return range(positions[0], positions[-1] + 1)

    @property
    def takes_all(self) -> bool:
        """Whether every position is selected once, in order."""
        return self.takes(range(self.x.size(self.axis)))

    def takes(self, positions: range) -> bool:
        """Whether exactly these positions are selected, in this order."""
        if isinstance(self.positions, range):
            return self.positions == positions
        return len(self.positions) == len(positions) and np.array_equal(self.positions, positions)

    def then(self, second: Selection) -> Selection:
        """The composition with a second selection from the result.

        Raises:
            Decline: the second one is along another axis.
        """
        if second.axis != self.axis:
            raise Decline
        if isinstance(self.positions, range) and isinstance(second.positions, range):
            cut = Cut.at(second.positions, len(self.positions))
            return Selection(self.x, self.axis, cut.of_range(self.positions))
        return Selection.at(self.x, self.axis, np.asarray(self.positions)[np.asarray(second.positions, np.int64)])

    def write(self, to: NodeBuilder) -> Value:
        """Write nothing (`x` itself) if all is selected, a `Slice` if positions are a range, else a `Gather`."""
        if self.takes_all:
            return self.x
        if isinstance(self.positions, range):
            return Slice(self.x, {self.axis: Cut.at(self.positions, self.x.size(self.axis))}).write(to)
        return Gather(self.x, self.axis, self.positions).write(to)
