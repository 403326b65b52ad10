"""Reductions whose kernels take the elements one by one, or columns against the grain of memory."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from math import prod
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reduction, Reshape
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, floats, joined, size_of


class LeadingReduction(Weighed, OpRule):
    """Another form of a reduction of the leading axes, where only axes of size 1 are before them and others behind.

    With an axis of size 1 before it, ONNX Runtime takes its slow way through the columns.
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
            raise Decline("there are axes before and behind those of {}: already fast", node.op)
        if not all(isinstance(dims[axis], int) for axis in first):
            raise Decline("the sizes of the axes {} of {} are not known", axes, x.name)
        rows = prod(x.size(axis) for axis in first)
        made = self.write(view, rows, long[0] > 0, rw)
        shape = [1 if axis in axes else dim for axis, dim in enumerate(dims) if view.keepdims or axis not in axes]
        return rw.replace(node, [Reshape.to(made, shape).write(rw)])

    @abstractmethod
    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        """The other form of a reduction of `rows` numbers to one each, `slow` where axes of size 1 are before them."""


def _columns(view: Reduction, rows: tuple[int, ...], rw: Rewriter) -> Value:
    """What is reduced, with other axes in place of all those and one behind."""
    dims = view.x.dims()
    behind = dims[max(axis for axis in view.axes if dims[axis] != 1) + 1 :]
    return Reshape.to(view.x, (*rows, joined(behind))).write(rw)


class ConvertLeadingReductionToMatmul(LeadingReduction):
    """Add up leading axes by a matrix product with a row of ones."""

    ops = ("ReduceSum", "ReduceMean")
    numerics = Numerics.ROUNDING

    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        """A mean is the sum divided, and not a sum of shares: it is infinite where the sum overflows, as before."""
        if not slow:
            raise Decline("no axis of size 1 is before those of {}: already fast", view.op)
        size = size_of(view.x)
        self.weigh(rw, {"kernel": 1, "reduce leading": size}, {"kernel": 4, "read": size})
        total = rw.op("MatMul", np.ones((1, rows), np.float32), _columns(view, (rows,), rw))
        return rw.op("Div", total, np.array(rows, np.float32)) if view.op == "ReduceMean" else total


class ConvertLeadingReductionToRows(LeadingReduction):
    """Reduce leading axes without the axis of size 1 before them, which sends the runtime the slow way."""

    ops = ("ReduceSum", "ReduceMean")
    numerics = Numerics.EXACT

    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        if not slow:
            raise Decline("no axis of size 1 is before those of {}: already fast", view.op)
        size = size_of(view.x)
        self.weigh(rw, {"kernel": 1, "reduce leading": size}, {"kernel": 3, "reduce rows": size})
        flat = replace(view, x=_columns(view, (rows,), rw), axes=(0,), keepdims=False)
        return flat.write(rw)


class ConvertLeadingMaxToParts(LeadingReduction):
    """Find the largest or smallest of leading axes in a few parts at a time, and then of those.

    With several parts before the axis the runtime goes along rows. There a NaN is the result wherever it is among the
    values; columns pass over it.
    """

    ops = ("ReduceMax", "ReduceMin")
    numerics = Numerics.FAST

    def write(self, view: Reduction, rows: int, slow: bool, rw: Rewriter) -> Value:
        """As many parts as divide the rows, two where possible."""
        parts = next((number for number in range(2, 9) if rows % number == 0 and rows > number), None)
        if parts is None:
            raise Decline("{} values cannot be parted into 2 to 8 equal parts", rows)
        size = size_of(view.x)
        self.weigh(rw, {"kernel": 1, "reduce leading": size}, {"kernel": 5, "reduce": size})
        found = rw.op(view.op, _columns(view, (parts, rows // parts), rw), axes=(1,), keepdims=0)
        each = rw.outputs(parts, "Split", found, axis=0, split=(1,) * parts)
        return rw.op(view.op[len("Reduce") :], *each)


class _Spelled(Weighed, OpRule):
    """A reduction that is a plain sum of something, for which the runtime has no kernel of its own."""

    numerics = Numerics.ROUNDING
    kind: ClassVar[str] = "reduce powers"
    passes: ClassVar[int] = 1

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Reduction.of(node)
        x = view.x
        size = floats(x)
        if not view.axes:
            raise Decline("{} reduces nothing", node.op)
        then = {"kernel": 2 + self.passes, "element": self.passes * size, "reduce": max(self.passes, 1) * size}
        self.weigh(rw, {"kernel": 1, self.kind: size}, then)
        return rw.replace(node, [self.write(view, rw)])

    @abstractmethod
    def write(self, view: Reduction, rw: Rewriter) -> Value:
        """The other form, where it is faster."""


def _sum(view: Reduction, of: Value, rw: Rewriter) -> Value:
    return replace(view, op="ReduceSum", x=of).write(rw)


class ConvertL1ToSum(_Spelled):
    """Add up absolute values by `Abs` and `ReduceSum` in place of `ReduceL1`."""

    ops = ("ReduceL1",)

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        return _sum(view, rw.op("Abs", view.x), rw)


class ConvertSquaresToSum(_Spelled):
    """Add up squares by `Mul` and `ReduceSum` in place of `ReduceSumSquare`, and of `ReduceL2` with `Sqrt`."""

    ops = ("ReduceSumSquare", "ReduceL2")

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        total = _sum(view, rw.op("Mul", view.x, view.x), rw)
        return rw.op("Sqrt", total) if view.op == "ReduceL2" else total


class ConvertLogSumToSum(_Spelled):
    """Compute `ReduceLogSum` by `ReduceSum` and `Log`."""

    ops = ("ReduceLogSum",)
    passes = 0

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        return rw.op("Log", _sum(view, view.x, rw))


class ConvertLogSumExpToSum(_Spelled):
    """Compute `ReduceLogSumExp` by the largest value, `Exp`, `ReduceSum` and `Log`.

    The largest value that is subtracted is kept finite, so that infinities give what the operator gives. Where there is
    a NaN beside an infinity, that depends on which of them the operator meets first.
    """

    ops = ("ReduceLogSumExp",)
    numerics = Numerics.FAST
    kind = "reduce logarithms"
    passes = 2

    def write(self, view: Reduction, rw: Rewriter) -> Value:
        """The largest value once with its axes, once as the result has it."""
        if any(not isinstance(view.x.dims()[axis], int) for axis in view.axes):
            raise Decline("{} may reduce no elements, of which none is the largest", view.op)
        ends = np.finfo(np.float32)
        largest = replace(view, op="ReduceMax", keepdims=True).write(rw)
        finite = rw.op("Clip", largest, min=ends.min, max=ends.max)
        total = _sum(replace(view, keepdims=True), rw.op("Exp", rw.op("Sub", view.x, finite)), rw)
        kept = rw.op("Add", rw.op("Log", total), finite)
        return kept if view.keepdims else rw.op("Squeeze", kept, axes=view.axes)


_PAIR = 2


class _FirstPosition(Weighed, OpRule):
    """Another form of a node that finds the first of equal values of float32."""

    ops = ("ArgMax", "ArgMin")
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Reduction.of(node)
        if view.x.dtype != TensorProto.FLOAT or node.attr("select_last_index", 0):
            raise Decline("{} takes the last of equal values, or not those of float32", node.result.name)
        position = self.write(node.op == "ArgMax", view.x, view.axes[0], rw)
        return rw.replace(node, [position if view.keepdims else rw.op("Squeeze", position, axes=view.axes)])

    @abstractmethod
    def write(self, largest: bool, x: Value, axis: int, rw: Rewriter) -> Value:
        """The position of the largest or the smallest value along an axis, where that is faster."""


class ConvertArgMaxToTopK(_FirstPosition):
    """Find the position of the largest of many last values by `TopK` of one, whose kernel is the faster one.

    Of equal values both take the first. They differ where there is a NaN.
    """

    opsets = "11-"

    def write(self, largest: bool, x: Value, axis: int, rw: Rewriter) -> Value:
        if axis != len(x.dims()) - 1:
            raise Decline("axis {} of {} is not the last one: TopK is slower there", axis, x.name)
        size = size_of(x)
        rows = size / max(x.size(axis), 1)
        self.weigh(rw, {"kernel": 1, "position": size}, {"kernel": 2, "first of many": size, "first": rows})
        return rw.outputs(2, "TopK", x, k=(1,), axis=-1, largest=None if largest else 0)[1]


class ConvertArgMaxOfPairsToGreater(_FirstPosition):
    """Find which of two values is the larger one by comparing them.

    Of equal values the first counts. They differ where there is a NaN.
    """

    opsets = "9-"

    def write(self, largest: bool, x: Value, axis: int, rw: Rewriter) -> Value:
        if axis == len(x.dims()) - 1 or x.size(axis) != _PAIR:
            raise Decline("{} has not two values along an axis in front of others", x.name)
        size = size_of(x)
        self.weigh(rw, {"kernel": 1, "position of few": size}, {"kernel": 3, "element": 1.5 * size})
        first, second = rw.outputs(_PAIR, "Split", x, axis=axis, split=(1, 1))
        greater = rw.op("Greater", *((second, first) if largest else (first, second)))
        return rw.op("Cast", greater, to=TensorProto.INT64)
