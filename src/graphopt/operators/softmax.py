"""`Softmax`, `LogSoftmax` and `Hardmax`: normalization over some axes."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

SOFTMAXES = frozenset({"Hardmax", "LogSoftmax", "Softmax"})

_ONE_AXIS_SINCE = 13
"""Before this opset, all axes from the stated one on are normalized together."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """A `Softmax`, `LogSoftmax` or `Hardmax`.

    Attributes:
        op: the operator.
        x: the data.
        axes: the axes that are normalized together, from the front, in order.
    """

    op: str
    x: Value
    axes: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, rank: int | None = None) -> Softmax:
        """Read a node.

        Args:
            node: the operator.
            rank: the rank of the data, if the caller knows it.

        Raises:
            Decline: it is none, or its axis is not known.
        """
        if node.op not in SOFTMAXES:
            raise Decline
        x = node.operand(0)
        rank, axis = len(x.dims()) if rank is None else rank, node.attr("axis")
        if not -rank <= axis < rank:
            raise Decline("{} has no axis {}", x.name, axis)
        axis %= rank
        return cls(node.op, x, (axis,) if node.graph.opset() >= _ONE_AXIS_SINCE else tuple(range(axis, rank)))

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset.

        Raises:
            Decline: the opset does not support normalizing these axes together.
        """
        opset, rank = to.graph.opset(), len(self.x.dims())
        if opset >= _ONE_AXIS_SINCE:
            if len(self.axes) != 1:
                raise Decline("it would normalize over axes {}, expected one axis", list(self.axes))
        elif self.axes != tuple(range(rank - len(self.axes), rank)):
            raise Decline("axes {} are not the last ones, as {} requires at opset {}", list(self.axes), self.op, opset)
        return to.op(self.op, self.x, axis=self.axes[0])
