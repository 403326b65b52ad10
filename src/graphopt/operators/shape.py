"""`Shape`: the whole shape or, from opset 15 on, a part of it."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

_PARTS_SINCE = 15


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a value, or of consecutive axes.

    Attributes:
        x: the value.
        start: the first axis, as in a Python slice.
        end: the end, as in a Python slice.
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
        if node.graph.opset() < _PARTS_SINCE:
            return cls(node.operand(0))
        return cls(node.operand(0), node.attrs.get("start", 0), node.attrs.get("end"))

    @classmethod
    def giving(cls, value: Value) -> Shape:
        """Read the `Shape` that produces a value, in any graph.

        Raises:
            Decline: another operator produces it.
        """
        if value.producer is None:
            raise Decline
        return cls.of(value.producer)

    def dims(self) -> tuple[Dim, ...]:
        """The sizes in its result, as far as known.

        Raises:
            Decline: the rank is not known.
        """
        return self.x.dims()[self.start : self.end]

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator.

        Raises:
            Decline: it returns a part, which the opset does not support.
        """
        if not self.start and self.end is None:
            whole: Value = to.op("Shape", self.x)
            return whole
        if to.graph.opset() < _PARTS_SINCE:
            raise Decline("opset {} has no Shape with start and end", to.graph.opset())
        part: Value = to.op("Shape", self.x, start=self.start, end=self.end)
        return part
