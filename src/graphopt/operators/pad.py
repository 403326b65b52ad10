"""`Pad`: `paddings` at opset 1, attributes up to 10, inputs from 11, axes from 18, wrapping from 19."""

from __future__ import annotations

from dataclasses import replace

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Pad:
    """Elements added, or removed for negative numbers, at the start and end of each axis.

    Attributes:
        x: the data.
        before: number of elements at the start, by axis.
        after: number of elements at the end, by axis.
        mode: `constant`, `reflect`, `edge` or `wrap`.
        fill: the constant, a value or a number; None for zero.
    """

    x: Value
    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str = "constant"
    fill: Value | float | None = None

    @classmethod
    def of(cls, node: Node, rank: int | None = None) -> Pad:
        """Read a `Pad`.

        Args:
            node: the operator.
            rank: the rank of the data, if the caller knows it.

        Raises:
            Decline: it is none, the pads or axes are not constant, or only some axes are padded and the
                rank is not known.
        """
        if node.op != "Pad":
            raise Decline
        x, pads, axes = node.operand(0), node.ints("pads") or (), node.ints("axes")
        half = len(pads) // 2
        before, after = pads[:half], pads[half:]
        if len(before) < len(after):
            raise Decline("it has {} pads, expected an even number", len(pads))
        if axes is not None:
            rank = len(x.dims()) if rank is None else rank
            places = [axis % rank for axis in axes if -rank <= axis < rank]
            if not len(places) == len(set(places)) == half:
                raise Decline("it names {} axes of {}, but has {} pads", len(places), x.name, len(pads))
            fronts, backs = dict(zip(places, before, strict=True)), dict(zip(places, after, strict=True))
            before, after = (tuple(side.get(axis, 0) for axis in range(rank)) for side in (fronts, backs))
        if any(known not in (None, len(before)) for known in (rank, x.rank)):
            raise Decline("it has pads for {} axes, not for each axis of {}", len(before), x.name)
        fill = node.stated("constant_value")
        return cls(x, before, after, node.attr("mode", "constant"), fill)

    @property
    def number(self) -> float:
        """The fill.

        Raises:
            Decline: it is not a constant of one element.
        """
        if not isinstance(self.fill, Value):
            return float(self.fill or 0.0)
        array = self.fill.array()
        if array.size != 1:
            raise Decline("{} is not a single number", self.fill.name)
        return float(array.reshape(-1)[0])

    @property
    def spatial(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The pads at the start and end of the axes after the first two.

        Raises:
            Decline: the batch or the channels are padded, or elements are removed.
        """
        if min(self.before + self.after, default=0) < 0:
            raise Decline("it has negative pads, which crop {}", self.x.name)
        if any(self.before[:2]) or any(self.after[:2]):
            raise Decline("it pads the batch or the channels of {}", self.x.name)
        return self.before[2:], self.after[2:]

    def reading(self, x: Value) -> Pad:
        """The same pads around another value."""
        return replace(self, x=x)

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset."""
        fill = self.number if isinstance(self.fill, Value) and to.graph.opset() < FILL_SINCE else self.fill
        return to.op("Pad", self.x, pads=self.before + self.after, constant_value=fill, mode=self.mode)


FILL_SINCE = 11
