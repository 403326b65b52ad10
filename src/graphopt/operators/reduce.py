"""Reductions: axes as an attribute up to opset 17 (`ReduceSum` up to 12), then as an input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.operators.axes import from_front
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

REDUCTIONS = frozenset(
    f"Reduce{kind}"
    for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)  # fmt: skip
POSITIONS = frozenset({"ArgMax", "ArgMin"})

_CHOOSING = POSITIONS | {"ReduceMax", "ReduceMin"}
_WIDE = (TensorProto.INT64, TensorProto.UINT64)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction over some axes.

    Attributes:
        op: the operator.
        x: the data.
        axes: the axes, from the front, in order; empty if nothing is reduced.
        keepdims: whether they stay, with size 1.
        others: further attributes of `ArgMax` and `ArgMin`.
    """

    op: str
    x: Value
    axes: tuple[int, ...]
    keepdims: bool
    others: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, node: Node, rank: int | None = None) -> Reduction:
        """Read a reduction.

        Args:
            node: the operator.
            rank: the rank of the data, if the caller knows it.

        Raises:
            Decline: it is none, or its axes are not constant, or depend on an unknown rank.
        """
        x, keepdims = node.operand(0), bool(node.attr("keepdims", 1))
        rank = x.rank if rank is None else rank
        if node.op in POSITIONS:
            others = tuple((k, v) for k, v in node.attrs.items() if k not in ("axis", "keepdims"))
            return cls(node.op, x, from_front((node.attr("axis", 0),), rank, x.name), keepdims, others)
        if node.op not in REDUCTIONS:
            raise Decline
        axes = node.ints("axes")
        if axes:
            return cls(node.op, x, from_front(axes, rank, x.name), keepdims)
        if node.attr("noop_with_empty_axes", 0):
            return cls(node.op, x, (), keepdims)
        return cls(node.op, x, tuple(range(len(x.dims()) if rank is None else rank)), keepdims)

    def check_holds_elements(self) -> None:
        """Check that the reduction of a single element is that element.

        ONNX Runtime sums, multiplies and averages integers in double precision.

        Raises:
            Decline: double precision may not represent the element.
        """
        if self.x.dtype in _WIDE and self.op not in _CHOOSING and (self.axes or self.x.rank == 0):
            raise Decline("the runtime reduces in float64, which may not represent the elements of {}", self.x.name)

    def then(self, second: Reduction) -> Reduction:
        """The composition with a second reduction of the same kind, as one over the axes of both.

        Raises:
            Decline: integers may be rounded or overflow in between, only one of them keeps its axes, or the rank is
                required and not known.
        """
        if self.x.dtype not in FLOAT_TYPES and self.op not in _CHOOSING and not self._counts():
            raise Decline("the element type of {} is not known to be a float", second.x.name)
        after = second.axes
        if not self.keepdims:
            left = [axis for axis in range(len(self.x.dims())) if axis not in self.axes]
            after = tuple(left[axis] for axis in from_front(after, len(left), second.x.name))
        axes = tuple(sorted({*self.axes, *after}))
        if self.keepdims != second.keepdims and (second.keepdims or axes != second.axes):
            raise Decline("the reductions have different keepdims")
        return replace(self, axes=axes, keepdims=second.keepdims)

    def _counts(self) -> bool:
        """Whether it sums or multiplies numbers cast from booleans, so that the result is small."""
        cast = self.x.made_by("Cast") if self.op in ("ReduceProd", "ReduceSum") else None
        return cast is not None and cast.operand(0).dtype == TensorProto.BOOL

    def keeping(self, keepdims: bool) -> Reduction:
        """The same reduction with another `keepdims`."""
        return replace(self, keepdims=keepdims)

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset.

        Raises:
            Decline: no axis is reduced, which not every opset can express.
        """
        keepdims = None if self.keepdims else 0
        if self.op in POSITIONS:
            position: Value = to.op(self.op, self.x, axis=self.axes[0], keepdims=keepdims, **dict(self.others))
            return position
        if not self.axes:
            raise Decline("{} reduces no axis", self.op)
        axes = None if len(self.axes) == self.x.rank else self.axes
        return to.op(self.op, self.x, axes=axes, keepdims=keepdims)
