"""`Split`: sizes as an attribute until opset 12, as an input from 13, and a number of parts from 18."""

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
        sizes: of the parts, in order.
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
        """What a `Split` takes for one part: of what, along which axis, at which positions.

        Of equal parts it looks at no other: there may be thousands.

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
        """Read a `SplitToSequence`, which makes parts of one size, or of the sizes that it lists.

        Args:
            node: the operator.
            most: no more parts of one size than so many.

        Raises:
            Decline: it is none, the rank or the sizes of the parts are not known, or whether these have the axis: of
                parts of one stated size the standard keeps it whatever `keepdims` says, ONNX Runtime does not.
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
            raise Decline("{} is cut into parts of {}", size, step)
        return cls(x, axis, tuple([min(step, size - start) for start in range(0, size, step)]))

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each part starts."""
        return tuple(accumulate(self.sizes[:-1], initial=0)) if self.sizes else ()

    def reading(self, x: Value) -> Split:
        """The same parts of another value."""
        return replace(self, x=x)

    def write(self, to: NodeBuilder) -> tuple[Value, ...]:
        """The operator, in the form of the opset of the graph: one value a part."""
        parts = to.outputs(len(self.sizes), "Split", self.x, axis=self.axis, split=self.sizes)
        return parts if isinstance(parts, tuple) else (parts,)


def _equal_part(whole: int, count: int, number: int) -> range:
    """The positions of one of so many equal parts; the last ones may be smaller, or empty."""
    size = -(-whole // count)
    return range(min(size * number, whole), min(size * (number + 1), whole))
