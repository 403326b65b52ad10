"""Reductions whose kernels read elements one by one, or columns with a stride."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from math import prod
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir.types import element_count
from graphopt.operators import Reduction, Reshape
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, check_count, floats, joined, reduced, rows_with, size_of


class LeadingReduction(Weighed, OpRule):
    """Replace a reduction of leading axes, which only axes of size 1 precede, and which other axes follow.

    With an axis of size 1 before them that is not reduced, ONNX Runtime uses its slow kernel for columns.
    """

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Reduction.of(node)
        x, axes = view.x, view.axes
        dims = x.dims()
        floats(x)
        long = [axis for axis, dim in enumerate(dims) if dim != 1]
        first = [axis for axis in long if axis in axes]
        if not first or first == long:
            raise Decline
        if first == long[-len(first) :]:
            raise Decline("the axes of {} are the last ones: already fast", node.op)
        if first != long[: len(first)]:
            raise Decline("there are axes before and after the reduced axes of {}: already fast", node.op)
        if not all(isinstance(dims[axis], int) for axis in first):
            raise Decline("the sizes of the axes {} of {} are not known", axes, x.name)
        rows = prod(x.size(axis) for axis in first)
        slow = any(axis not in axes for axis in range(first[-1]))
        made = self.write(view, rows, slow, rw)
        shape = [1 if axis in axes else dim for axis, dim in enumerate(dims) if view.keepdims or axis not in axes]
        return rw.replace(node, [Reshape.to(made, shape).write(rw)])

    @abstractmethod
    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        """Write the other form of a reduction over `rows` elements; `slow` if axes of size 1 stay before the axes."""


def _columns(view: Reduction, rows: tuple[int, ...], rw: Rewriter) -> Value:
    """Reshape the operand to axes `rows` in place of the leading axes, and one axis for those after them."""
    dims = view.x.dims()
    behind = dims[max(axis for axis in view.axes if dims[axis] != 1) + 1 :]
    return Reshape.to(view.x, (*rows, joined(behind))).write(rw)


class ConvertLeadingReductionToMatmul(LeadingReduction):
    """Replace a sum or mean over leading axes with a matrix product with a row of ones."""

    ops = ("ReduceSum", "ReduceMean")
    numerics = Numerics.ROUNDING

    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        """Divide the sum for a mean, rather than weigh with 1/n: it is infinite where the sum overflows, as before."""
        if not slow:
            raise Decline("no axis of size 1 stays before the reduced axes of {}: already fast", view.op)
        size = size_of(view.x)
        self.weigh(rw, {"kernel": 1, "reduce leading": size}, {"kernel": 4, "read": size})
        check_count(rows, "rows", 1 << 24)
        total = rw.op("MatMul", np.ones((1, rows), np.float32), _columns(view, (rows,), rw))
        return rw.op("Div", total, np.array(rows, np.float32)) if view.op == "ReduceMean" else total


class ConvertLeadingReductionToRows(LeadingReduction):
    """Remove the axes of size 1 before a sum or mean over leading axes, which make the runtime use a slow kernel."""

    ops = ("ReduceSum", "ReduceMean")
    numerics = Numerics.EXACT

    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        if not slow:
            raise Decline("no axis of size 1 stays before the reduced axes of {}: already fast", view.op)
        size = size_of(view.x)
        self.weigh(rw, {"kernel": 1, "reduce leading": size}, {"kernel": 3, "reduce rows": size})
        flat = replace(view, x=_columns(view, (rows,), rw), axes=(0,), keepdims=False)
        return flat.write(rw)


_MANY, _APART = 256, 512
"""Rows whose distance is a multiple of `_APART` elements share so few places of the cache that it holds no more."""


class ConvertLeadingMaxToParts(LeadingReduction):
    """Split a maximum or minimum over leading axes into 2 to 8 parts, and combine them.

    With several parts before the axis, the runtime reduces along rows. That kernel returns NaN if any element is NaN;
    the kernel for columns ignores NaN.
    """

    ops = ("ReduceMax", "ReduceMin")
    numerics = Numerics.FAST

    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        """Take the smallest number of parts that divides the rows."""
        parts = next((number for number in range(2, 9) if rows % number == 0 and rows > number), None)
        if parts is None:
            raise Decline("{} values cannot be split into 2 to 8 equal parts", rows)
        if not slow and rows > _MANY and element_count(view.x.dims()[max(view.axes) + 1 :]) % _APART == 0:
            raise Decline("{} rows, a multiple of 2 KiB apart, replace each other in the cache", rows)
        size = size_of(view.x)
        self.weigh(rw, {"kernel": 1, "reduce leading": size}, {"kernel": 5, "reduce": size})
        found = rw.op(view.op, _columns(view, (parts, rows // parts), rw), axes=(1,), keepdims=0)
        each = rw.outputs(parts, "Split", found, axis=0, split=(1,) * parts)
        return rw.op(view.op[len("Reduce") :], *each)


class _Spelled(Weighed, OpRule):
    """Replace a reduction that lacks a fast kernel of its own with a sum of an elementwise function."""

    numerics = Numerics.ROUNDING
    kind: ClassVar[str] = "reduce powers"
    passes: ClassVar[int] = 1

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Reduction.of(node)
        x = view.x
        size = floats(x)
        if not view.axes:
            raise Decline("{} reduces no axis", node.op)
        if self.kind == "reduce powers" and len(view.axes) == len(x.dims()):
            raise Decline("{} reduces all axes: already fast", node.op)
        sums, rows = max(self.passes, 1) * reduced(x, view.axes), (self.passes == 2) * rows_with(x, view.axes)
        then = {"kernel": 2 + self.passes, "element": self.passes * size, "reduce": sums, "short row": rows}
        self.weigh(rw, {"kernel": 1, self.kind: size}, then)
        return rw.replace(node, [self.write(view, rw)])

    @abstractmethod
    def write(self, view: Reduction, rw: Rewriter) -> Value:
        """Write the other form; declines where it is not faster."""


def _sum(view: Reduction, of: Value, rw: Rewriter) -> Value:
    return replace(view, op="ReduceSum", x=of).write(rw)


class ConvertL1ToSum(_Spelled):
    """Replace `ReduceL1` with `Abs` and `ReduceSum`."""

    ops = ("ReduceL1",)

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        return _sum(view, rw.op("Abs", view.x), rw)


class ConvertSquaresToSum(_Spelled):
    """Replace `ReduceSumSquare` with `Mul` and `ReduceSum`, and `ReduceL2` with these and `Sqrt`."""

    ops = ("ReduceSumSquare", "ReduceL2")

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        total = _sum(view, rw.op("Mul", view.x, view.x), rw)
        return rw.op("Sqrt", total) if view.op == "ReduceL2" else total


class ConvertLogSumToSum(_Spelled):
    """Replace `ReduceLogSum` with `ReduceSum` and `Log`."""

    ops = ("ReduceLogSum",)
    passes = 0

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        return rw.op("Log", _sum(view, view.x, rw))


class ConvertLogSumExpToSum(_Spelled):
    """Replace `ReduceLogSumExp` with `ReduceMax`, `Exp`, `ReduceSum` and `Log`.

    The subtracted maximum is clamped to finite values, so that infinities give the same result. For a NaN beside an
    infinity, the operator's result depends on which of them comes first.
    """

    ops = ("ReduceLogSumExp",)
    numerics = Numerics.FAST
    kind = "reduce logarithms"
    passes = 2

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        """Write the maximum twice: with its axes kept for the subtraction, and in the shape of the result."""
        if any(not isinstance(view.x.dims()[axis], int) for axis in view.axes):
            raise Decline("{} may reduce over no elements, which have no maximum", view.op)
        ends = np.finfo(np.float32)
        largest = replace(view, op="ReduceMax", keepdims=True).write(rw)
        finite = rw.op("Clip", largest, min=ends.min, max=ends.max)
        total = _sum(replace(view, keepdims=True), rw.op("Exp", rw.op("Sub", view.x, finite)), rw)
        kept = rw.op("Add", rw.op("Log", total), finite)
        return kept if view.keepdims else rw.op("Squeeze", kept, axes=view.axes)


_PAIR = 2


class _FirstPosition(Weighed, OpRule):
    """Replace an `ArgMax` or `ArgMin` of float32 that selects the first of equal values."""

    ops = ("ArgMax", "ArgMin")
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Reduction.of(node)
        if view.x.dtype != TensorProto.FLOAT or node.attr("select_last_index", 0):
            raise Decline("{} selects the last of equal values, or its operand is not float32", node.result.name)
        position = self.write(node.op == "ArgMax", view.x, view.axes[0], rw)
        return rw.replace(node, [position if view.keepdims else rw.op("Squeeze", position, axes=view.axes)])

    @abstractmethod
    def write(self, largest: bool, x: Value, axis: int, rw: Rewriter) -> Value:
        """Write the position of the largest or smallest value along an axis; declines where that is not faster."""


_LONG = 512
"""The least elements of a row in which a new maximum is rare enough for `TopK`, which jumps at each."""


class ConvertArgMaxToTopK(_FirstPosition):
    """Replace an `ArgMax` over a long last axis with `TopK` of k = 1, whose kernel is faster.

    Of equal values both select the first. Results differ for NaN.
    """

    opsets = "11-"

    def write(self, largest: bool, x: Value, axis: int, rw: Rewriter) -> Value:
        if axis != len(x.dims()) - 1:
            raise Decline("axis {} of {} is not the last one: TopK is slower there", axis, x.name)
        if x.size(axis) < _LONG:
            raise Decline("rows of {} are {} long: TopK is slower there", x.name, x.size(axis))
        size = size_of(x)
        rows = size / max(x.size(axis), 1)
        self.weigh(rw, {"kernel": 1, "position": size}, {"kernel": 2, "first of many": size, "first": rows})
        return rw.outputs(2, "TopK", x, k=(1,), axis=-1, largest=None if largest else 0)[1]


class ConvertArgMaxOfPairsToGreater(_FirstPosition):
    """Replace an `ArgMax` over two values with a comparison.

    Of equal values both select the first. Results differ for NaN.
    """

    opsets = "9-"

    def write(self, largest: bool, x: Value, axis: int, rw: Rewriter) -> Value:
        if axis == len(x.dims()) - 1 or x.size(axis) != _PAIR:
            raise Decline("{} does not have size 2 along an axis before the last", x.name)
        size = size_of(x)
        self.weigh(rw, {"kernel": 1, "position of few": size}, {"kernel": 3, "element": 1.5 * size})
        first, second = rw.outputs(_PAIR, "Split", x, axis=axis, split=(1, 1))
        greater = rw.op("Greater", *((second, first) if largest else (first, second)))
        return rw.op("Cast", greater, to=TensorProto.INT64)
