"""`Split`: sizes as an attribute up to opset 12, as an input from 13, and a number of parts from 18."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a value along one axis.

    Attributes:
        x: what is split.
        axis: the axis, from the front.
        sizes: the sizes of the parts, in order.
    """

    x: Value
    axis: int
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, node: Node) -> Split:
        """Read a `Split`.

        Raises:
            Decline: it is none, or the rank or the sizes of the parts are not known.
        """
        if node.op != "Split":
            raise Decline
        x = node.operand(0)
        axis = x.axis(node.attr("axis", 0))
        sizes, count = node.ints("split"), len(node.outputs)
        if sizes is None:
            whole = x.size(axis)
            sizes = tuple([len(_equal_part(whole, count, number)) for number in range(count)])
        if len(sizes) != count:
            raise Decline("{} sizes for {} parts", len(sizes), count)
        return cls(x, axis, sizes)

    @classmethod
    def part(cls, node: Node, number: int) -> tuple[Value, int, range]:
        """One part of a `Split`: the data, the axis, and the positions.

        For equal parts it does not compute the others, of which there may be thousands.

        Raises:
            Decline: it is none, or the rank or the sizes of the parts are not known, or do not add up.
        """
        if node.op != "Split":
            raise Decline
        x, sizes, count = node.operand(0), node.ints("split"), len(node.outputs)
        axis = x.axis(node.attr("axis", 0))
        whole = x.size(axis)
        if sizes is None:
            return x, axis, _equal_part(whole, count, number)
        if len(sizes) != count or sum(sizes) != whole:
            raise Decline("the parts of {} do not add up to its size", x.name)
        start = sum(sizes[:number])
        return x, axis, range(start, start + sizes[number])

    @classmethod
    def of_sequence(cls, node: Node, most: int) -> Split:
        """Read a `SplitToSequence` into parts of one size, or of listed sizes.

        Args:
            node: the operator.
            most: the largest number of parts of one size.

        Raises:
            Decline: it is none, the rank or the sizes of the parts are not known, or whether they keep the axis: if one
                size is stated for all parts, the standard ignores `keepdims`, ONNX Runtime does not.
        """
        if node.op != "SplitToSequence":
            raise Decline
        x, stated = node.operand(0), node.input(1)
        axis = x.axis(node.attr("axis", 0))
        size = x.size(axis)
        given = (1,) if stated is None else stated.ints()
        if stated is not None and stated.rank != 0:
            if sum(given) != size or min(given, default=-1) < 0:
                raise Decline("sizes {} do not add up to {}", given, size)
            return cls(x, axis, given)
        if stated is not None and not node.attr("keepdims", 1):
            raise Decline("the standard and ONNX Runtime disagree whether parts of {} keep the axis", given[0])
        step = given[0]
        if step < 1 or not 1 <= size <= step * most:
            raise Decline("an axis of size {} is split into no part or too many parts of size {}", size, step)
        return cls(x, axis, tuple([min(step, size - start) for start in range(0, size, step)]))

    @property
    def starts(self) -> tuple[int, ...]:
        """The start of each part."""
        return tuple(accumulate(self.sizes[:-1], initial=0)) if self.sizes else ()

    def reading(self, x: Value) -> Split:
        """The same parts of another value."""
        return replace(self, x=x)

    def write(self, to: NodeBuilder) -> tuple[Value, ...]:
        """Write the operator in the form of the graph's opset: one value per part."""
        parts = to.outputs(len(self.sizes), "Split", self.x, axis=self.axis, split=self.sizes)
        return parts if isinstance(parts, tuple) else (parts,)


def _equal_part(whole: int, count: int, number: int) -> range:
    """The positions of part `number` of `count` equal parts; the last ones may be smaller, or empty."""
    size = -(-whole // count)
    return range(min(size * number, whole), min(size * (number + 1), whole))
