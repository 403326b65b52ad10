"""`Shape`: the whole shape, or from opset 15 on a part of it."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

_PARTS_SINCE = 15


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a value, or of some neighbouring axes.

    Attributes:
        x: the value.
        start: the first axis, as in a Python slice.
        end: behind the last axis; None for all that are left.
    """

    x: Value
    start: int = 0
    end: int | None = None

    @classmethod
    def of(cls, node: Node) -> Shape:
        """Read a `Shape`.

        Raises:
            Decline: it is none.
        """
        if node.op != "Shape":
            raise Decline
        return cls(node.operand(0), node.attrs.get("start", 0), node.attrs.get("end"))

    @classmethod
    def giving(cls, value: Value) -> Shape:
        """Read the `Shape` that gives a value, in whatever graph.

        Raises:
            Decline: something else gives it.
        """
        if value.producer is None:
            raise Decline
        return cls.of(value.producer)

    def dims(self) -> tuple[Dim, ...]:
        """What it gives, as far as it is known.

        Raises:
            Decline: the rank is not known.
        """
        return self.x.dims()[self.start : self.end]

    def write(self, to: NodeBuilder) -> Value:
        """The operator.

        Raises:
            Decline: it gives a part, which the opset does not have.
        """
        if not self.start and self.end is None:
            whole: Value = to.op("Shape", self.x)
            return whole
        if to.graph.opset() < _PARTS_SINCE:
            raise Decline("opset {} has no Shape of some axes", to.graph.opset())
        part: Value = to.op("Shape", self.x, start=self.start, end=self.end)
        return part
