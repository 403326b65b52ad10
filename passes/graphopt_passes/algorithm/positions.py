"""Where the largest value is."""

from __future__ import annotations

from abc import abstractmethod

from onnx import TensorProto

from graphopt.operators import Reduction
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of

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
