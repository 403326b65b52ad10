"""Sequences whose elements are known, and optionals of which it is known what they hold."""

from __future__ import annotations

import onnx

from graphopt.errors import Decline
from graphopt.ir import Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a `SequenceConstruct` or `SequenceEmpty`.

    Attributes:
        values: the elements, in order.
    """

    values: tuple[Value, ...]

    @classmethod
    def of(cls, sequence: Value) -> Elements:
        """Read the elements of a sequence, which may be one of an outer graph.

        Raises:
            Decline: they are not known.
        """
        node = sequence.made_by("SequenceConstruct", "SequenceEmpty")
        if node is None:
            raise Decline("the elements of {} are not known", sequence.name)
        return cls(tuple([node.operand(index) for index in range(len(node.inputs))]))

    def at(self, position: int) -> Value:
        """One element, counted from the end where the position is negative.

        Raises:
            Decline: there is no such element.
        """
        return self.values[self._index(position, len(self.values) - 1)]

    def inserting(self, value: Value, position: int | None) -> Elements:
        """The elements with another one in front of a position, at the end where none is given.

        Raises:
            Decline: there is no such position.
        """
        count = len(self.values)
        index = count if position is None else self._index(position, count)
        return Elements((*self.values[:index], value, *self.values[index:]))

    def erasing(self, position: int) -> Elements:
        """The elements but for one.

        Raises:
            Decline: there is no such element.
        """
        index = self._index(position, len(self.values) - 1)
        return Elements(self.values[:index] + self.values[index + 1 :])

    def _index(self, position: int, last: int) -> int:
        """A position counted from the front, where that is no later than the last one allowed."""
        count = len(self.values)
        if not -count <= position <= last:
            raise Decline("there is no position {} among {}", position, count)
        return position + count if position < 0 else position

    def write(self, to: NodeBuilder) -> Value:
        """The sequence.

        Raises:
            Decline: there is no element, so that nothing says of what type they are.
        """
        if not self.values:
            raise Decline("nothing would be left")
        sequence: Value = to.op("SequenceConstruct", *self.values)
        return sequence


def held(value: Value) -> Value | None:
    """What an optional holds, which is itself where it is no optional; None where it is empty.

    Raises:
        Decline: that is not known.
    """
    known = value.type
    if value.dtype is not None or (isinstance(known, onnx.TypeProto) and known.HasField("sequence_type")):
        return value
    optional = value.made_by("Optional")
    if optional is None:
        raise Decline("it is not known what {} holds", value.name)
    return optional.input(0)
