"""Selections: elements at constant positions along one axis, whichever operator takes them."""

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
        x: what they are taken of.
        axis: the axis, from the front.
        positions: counted from the front, in the order in which they are taken: a range, or an int64 array.
    """

    x: Value
    axis: int
    positions: range | np.ndarray

    @classmethod
    def all_of(cls, x: Value, axis: int) -> Selection:
        """Every position of an axis.

        Raises:
            Decline: its size is not known.
        """
        return cls(x, axis, range(x.size(axis)))

    @classmethod
    def at(cls, x: Value, axis: int, positions: np.ndarray) -> Selection:
        """A list of positions, which becomes a range where they are neighbours in order."""
        start = int(positions[0]) if positions.size else 0
        run = range(start, start + positions.size)
        return cls(x, axis, run if np.array_equal(positions, run) else positions)

    @classmethod
    def one(cls, x: Value, axis: int, position: int) -> Selection:
        """A single position, which counts from the end where it is negative.

        Raises:
            Decline: the size of the axis is not known, or does not have it.
        """
        size = x.size(axis)
        if not -size <= position < size:
            raise Decline("a position is outside of axis {} of {}", axis, x.name)
        position %= size
        return cls(x, axis, range(position, position + 1))

    @classmethod
    def of(cls, value: Value, reader: Node | None = None) -> Selection:
        """Read the `Slice` of one axis, the `Gather` at a list of positions or the `Split` that gives a value.

        Args:
            value: the value.
            reader: the node that reads it; what gives it is in the same graph.

        Raises:
            Decline: without a reason when something else gives it; when a position or a size is not known.
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
        """The positions as neighbours in order.

        Raises:
            Decline: they are none, or there are none.
        """
        positions = self.positions
        if not len(positions):
            raise Decline("nothing is taken along axis {} of {}", self.axis, self.x.name)
        if not isinstance(positions, range) or (positions.step != 1 and len(positions) > 1):
            raise Decline("the positions along axis {} of {} are not neighbours in order", self.axis, self.x.name)
        return range(positions[0], positions[-1] + 1)

    @property
    def takes_all(self) -> bool:
        """Whether every position is taken once, in order."""
        return self.takes(range(self.x.size(self.axis)))

    def takes(self, positions: range) -> bool:
        """Whether these positions are taken, in this order, however they are stated."""
        if isinstance(self.positions, range):
            return self.positions == positions
        return len(self.positions) == len(positions) and np.array_equal(self.positions, positions)

    def then(self, second: Selection) -> Selection:
        """This one and a second that takes positions of what it gives, as one.

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
        """`x` itself where everything is taken, a `Slice` where positions are a range, and a `Gather` otherwise."""
        if self.takes_all:
            return self.x
        if isinstance(self.positions, range):
            return Slice(self.x, {self.axis: Cut.at(self.positions, self.x.size(self.axis))}).write(to)
        return Gather(self.x, self.axis, self.positions).write(to)
