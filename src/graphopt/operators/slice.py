"""`Slice`: attributes up to opset 9, inputs of either integer type from 10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.ir.types import MOST_AXES
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

TO_THE_END = (1 << 63) - 1
"""An end after every element."""

_OPEN_END = (1 << 31) - 1

FARTHEST = (_OPEN_END, TO_THE_END)
"""Ends that exporters write for the end of an axis."""
_LONGEST = 1 << 62
"""No array is longer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The slice of one axis, as in Python: `[start:end:step]`, where negative bounds count from the end."""

    start: int
    end: int
    step: int = 1

    def positions(self, dim: int) -> range:
        """The positions that it selects from an axis of size `dim`.

        Raises:
            Decline: no array is as long.
        """
        if dim > _LONGEST:
            raise Decline("an axis of {} elements is too long", dim)
        return self.of_range(range(dim))

    def of_range(self, positions: range) -> range:
        """The positions that it selects from a range.

        A start before the first element means the first one, even with a negative step, where Python selects nothing.
        """
        start = max(self.start, -len(positions)) if self.step < 0 else self.start
        return positions[start : self.end : self.step]

    def takes_all(self, dim: Dim) -> bool:
        """Whether it selects every position in order; for an unknown `dim`, whatever the size is.

        Exporters write an end from 2^31-1 on if they do not know the size.
        """
        if isinstance(dim, int):
            return self.positions(dim) == range(dim)
        return self.step == 1 and (self.start == 0 or self.start < -_OPEN_END) and self.end >= _OPEN_END

    @classmethod
    def at(cls, positions: range, dim: int) -> Cut:
        """The cut that selects these positions from an axis of size `dim`."""
        if not positions:
            return cls(0, 0)
        if len(positions) == 1:  # the step has no effect
            return cls(positions.start, positions.start + 1)
        last = positions.stop if positions.stop >= 0 else -dim - 1
        return cls(positions.start, last, positions.step)

    def then(self, second: Cut, before: Dim) -> Cut:
        """The composition with a second cut of the result.

        Args:
            second: the second cut.
            before: the size of the axis before both.

        Raises:
            Decline: it depends on an unknown size.
        """
        if isinstance(before, int):
            return Cut.at(second.of_range(self.positions(before)), before)
        numbers = (self.start, self.end, second.start, second.end)
        if min(numbers) < 0 or self.step != 1 or second.step != 1:
            raise Decline("both slice an axis whose size is not known")
        return Cut(min(self.start + second.start, TO_THE_END), min(self.end, self.start + second.end, TO_THE_END))


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements at regular positions along some axes.

    Attributes:
        x: the data.
        cuts: the cut of each axis that is cut; axes from the front.
    """

    x: Value
    cuts: Mapping[int, Cut]

    @classmethod
    def of(cls, node: Node) -> Slice:
        """Read a `Slice`.

        Raises:
            Decline: it is none, a list is not constant, an axis is counted from the end of an unknown rank, or runtimes
                differ in its result (docs/runtime-differences.md).
        """
        if node.op != "Slice":
            raise Decline
        x = node.operand(0)
        stated = cls.stated(node)
        axes, cuts = [axis for axis, _ in stated], [cut for _, cut in stated]
        if x.shape is not None or min(axes, default=0) < 0:
            axes = [x.axis(axis) for axis in axes]
        if len(set(axes)) < len(axes) or any(cut.step == 0 for cut in cuts):
            raise Decline("it slices an axis twice, or with a step of 0")
        if any(cut.step < 0 and cut.end in FARTHEST for cut in cuts):
            raise Decline("it has a negative step to the largest integer, which the runtime reads as the first element")
        return cls(x, dict(zip(axes, cuts, strict=True)))

    @staticmethod
    def stated(node: Node) -> list[tuple[int, Cut]]:
        """The axes as a `Slice` states them, possibly from the end, and the cut of each.

        Raises:
            Decline: a list is not constant, or they differ in length.
        """
        starts, ends = node.ints("starts") or (), node.ints("ends") or ()
        axes, steps = node.ints("axes"), node.ints("steps") or (1,) * len(starts)
        axes = tuple(range(len(starts))) if axes is None else axes
        counts = (len(starts), len(ends), len(axes), len(steps))
        if len(set(counts)) > 1:
            raise Decline("starts, ends, axes and steps have {}, {}, {} and {} elements", *counts)
        return [(axis, Cut(*each)) for axis, *each in zip(axes, starts, ends, steps, strict=True)]

    @staticmethod
    def axes_of(node: Node) -> tuple[int, ...]:
        """The axes that a `Slice` states, whatever starts and ends are; the first axes in order if it states none.

        Raises:
            Decline: they are not constant.
        """
        axes = node.ints("axes")
        if axes is not None:
            return axes
        starts = node.input(1)
        # whatever size the list is declared to have
        return tuple(range(len(node.ints("starts") or ()) if starts is None else min(starts.size(0), MOST_AXES)))

    def along(self, axis: int) -> Cut:
        """The cut of an axis; the whole axis if it is not cut."""
        return self.cuts.get(axis, Cut(0, TO_THE_END))

    def reading(self, x: Value) -> Slice:
        """The same cuts of another value."""
        return replace(self, x=x)

    def then(self, second: Slice) -> Slice:
        """The composition with a second `Slice` of the result.

        Raises:
            Decline: both cut an axis, and the composition depends on an unknown size.
        """
        cuts = dict(self.cuts)
        for axis, cut in second.cuts.items():
            cuts[axis] = cuts[axis].then(cut, self.x.dim(axis)) if axis in cuts else cut
        return replace(self, cuts=cuts)

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset, or return `x` if nothing is cut.

        Raises:
            Decline: there are steps, which the opset does not support.
        """
        if not self.cuts:
            return self.x
        axes = sorted(self.cuts)
        starts, ends, steps = zip(
            *((self.cuts[a].start, self.cuts[a].end, self.cuts[a].step) for a in axes), strict=True
        )
        if set(steps) == {1}:
            return to.op("Slice", self.x, starts=starts, ends=ends, axes=axes)
        if to.graph.opset() < STEPS_SINCE:
            raise Decline("opset {} has no Slice with steps", to.graph.opset())
        return to.op("Slice", self.x, starts=starts, ends=ends, axes=axes, steps=steps)


STEPS_SINCE = 10
