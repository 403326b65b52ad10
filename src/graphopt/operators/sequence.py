"""Sequences with known elements, and optionals with known contents."""

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
        """Read the elements of a sequence, which may be captured.

        Raises:
            Decline: they are not known.
        """
        node = sequence.made_by("SequenceConstruct", "SequenceEmpty")
        if node is None:
            raise Decline("the elements of {} are not known", sequence.name)
        return cls(tuple([node.operand(index) for index in range(len(node.inputs))]))

    def at(self, position: int) -> Value:
        """An element; a negative position counts from the end.

        Raises:
            Decline: there is no such element.
        """
        return self.values[self._index(position, len(self.values) - 1)]

    def inserting(self, value: Value, position: int | None) -> Elements:
        """The elements with another one inserted before a position, or at the end if it is None.

        Raises:
            Decline: there is no such position.
        """
        count = len(self.values)
        index = count if position is None else self._index(position, count)
        return Elements((*self.values[:index], value, *self.values[index:]))

    def erasing(self, position: int) -> Elements:
        """The elements without the one at a position.

        Raises:
            Decline: there is no such element.
        """
        index = self._index(position, len(self.values) - 1)
        return Elements(self.values[:index] + self.values[index + 1 :])

    def _index(self, position: int, last: int) -> int:
        """A position counted from the front; declines if it exceeds `last`."""
        count = len(self.values)
        if not -count <= position <= last:
            raise Decline("index {} is out of range for {} elements", position, count)
        return position + count if position < 0 else position

    def write(self, to: NodeBuilder) -> Value:
        """Write the sequence.

        Raises:
            Decline: there are no elements, so that the element type is not known.
        """
        if not self.values:
            raise Decline("the new sequence would be empty")
        sequence: Value = to.op("SequenceConstruct", *self.values)
        return sequence


def held(value: Value) -> Value | None:
    """The contents of an optional, None if it is empty; a value that is no optional itself.

    Raises:
        Decline: the contents are not known.
    """
    known = value.type
    if value.dtype is not None or (isinstance(known, onnx.TypeProto) and known.HasField("sequence_type")):
        return value
    optional = value.made_by("Optional")
    if optional is None:
        raise Decline("the content of {} is not known", value.name)
    return optional.input(0)
