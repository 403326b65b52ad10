"""Slices that meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by

_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cut:
    """What a `Slice` does to one axis."""

    start: int
    end: int
    step: int


def read_cuts(node: Node, rank: int | None) -> dict[int, Cut] | Mismatch:
    """What a `Slice` does, by axis, in either opset form."""
    if node.graph.opset() < 10:
        columns = [node.attr("starts"), node.attr("ends"), node.attr("axes"), None]
    else:
        columns = []
        for index in range(1, 5):
            value = node.input(index)
            array = value.const() if value is not None else None
            if value is not None and array is None:
                return Mismatch("{} is not constant", value.name)
            columns.append(None if array is None else [int(n) for n in array.reshape(-1)])
    starts, ends = columns[0], columns[1]
    axes = columns[2] if columns[2] is not None else range(len(starts))
    steps = columns[3] if columns[3] is not None else [1] * len(starts)
    if rank is None and min(axes, default=0) < 0:
        return Mismatch("the rank of {} is not known", node.inputs[0].name if node.inputs[0] is not None else "x")
    return {
        axis if rank is None else axis % rank: Cut(start, end, step)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True)
    }


def _from_front(cut: Cut, dim: Dim) -> Cut | None:
    """The same with non-negative ends, or None where that is not known."""
    if cut.step != 1:
        return None
    if cut.start >= 0 and cut.end >= 0:
        return cut
    if not isinstance(dim, int):
        return None
    start, end = (max(n + dim, 0) if n < 0 else n for n in (cut.start, cut.end))
    return Cut(start, end, 1)


def join_cuts(first: Cut, second: Cut, before: Dim, between: Dim) -> Cut | None:
    """One cut that does what two do in turn, or None where that is not known."""
    one, two = _from_front(first, before), _from_front(second, between)
    if one is None or two is None:
        return None
    return Cut(min(one.start + two.start, _END), min(one.end, one.start + two.end, _END), 1)


def _dim(value: Value, axis: int) -> Dim:
    return value.shape[axis] if value.shape is not None and axis < len(value.shape) else None


class FuseConsecutiveSlices(OpRule):
    """Join two `Slice` with constant bounds into one.

    On different axes always; on the same axis with steps of 1, and bounds from the front or a known size. The first one
    stays for its other readers, where it has any.
    """

    name = "fuse_consecutive_slices"
    ops = ("Slice",)
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "fuse_consecutive_slices"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Collect the bounds by axis."""
        value = node.input(0)
        first = made_by(value, "Slice")
        if value is None or first is None:
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        x = first.inputs[0]
        assert x is not None
        one, two = read_cuts(first, x.rank), read_cuts(node, x.rank)
        if isinstance(one, Mismatch):
            return one
        if isinstance(two, Mismatch):
            return two
        cuts = dict(one)
        for axis, cut in two.items():
            joined = join_cuts(one[axis], cut, _dim(x, axis), _dim(value, axis)) if axis in one else cut
            if joined is None:
                return Mismatch("both cut axis {} in ways that do not add up", axis)
            cuts[axis] = joined
        return rw.replace(node, [self._written(rw, x, cuts)])

    def _written(self, rw: Rewriter, x: Value, cuts: dict[int, Cut]) -> Value:
        axes = sorted(cuts)
        starts, ends, steps = ([getattr(cuts[a], key) for a in axes] for key in ("start", "end", "step"))
        if rw.graph.opset() < 10:
            result: Value = rw.op("Slice", x, starts=tuple(starts), ends=tuple(ends), axes=tuple(axes))
        else:
            columns = [starts, ends, axes] + ([steps] if set(steps) != {1} else [])
            result = rw.op("Slice", x, *(np.array(c, dtype=np.int64) for c in columns))
        return result
