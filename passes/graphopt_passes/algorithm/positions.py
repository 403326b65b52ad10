"""Where the largest value is."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.operators import Reduction
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of

_PAIR = 2


class ConvertArgMaxToTopK(Weighed, OpRule):
    """Find the position of the largest of many last values by `TopK` of one, whose kernel is the faster one.

    Of equal values both take the first. They differ where there is a NaN.
    """

    ops = ("ArgMax", "ArgMin")
    opsets = "11-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Only along the last axis."""
        view, x, axis = _first_position(node)
        if axis != len(x.dims()) - 1:
            raise Decline("axis {} of {} is not the last one: TopK is slower there", axis, x.name)
        size = size_of(x)
        rows = size / max(x.size(axis), 1)
        self.weigh(rw, {"kernel": 1, "position": size}, {"kernel": 2, "first of many": size, "first": rows})
        largest = None if node.op == "ArgMax" else 0
        _, position = rw.outputs(2, "TopK", x, k=(1,), axis=-1, largest=largest)
        return rw.replace(node, [position if view.keepdims else rw.op("Squeeze", position, axes=(axis,))])


class ConvertArgMaxOfPairsToGreater(Weighed, OpRule):
    """Find which of two values is the larger one by comparing them.

    Of equal values the first counts. They differ where there is a NaN.
    """

    ops = ("ArgMax", "ArgMin")
    opsets = "9-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Two slices, compared as the operator does."""
        view, x, axis = _first_position(node)
        if axis == len(x.dims()) - 1 or x.size(axis) != _PAIR:
            raise Decline("{} has not two values along an axis in front of others", x.name)
        size = size_of(x)
        self.weigh(rw, {"kernel": 1, "position of few": size}, {"kernel": 3, "element": 1.5 * size})
        first, second = rw.outputs(_PAIR, "Split", x, axis=axis, split=(1, 1))
        larger = (second, first) if node.op == "ArgMax" else (first, second)
        position = rw.op("Cast", rw.op("Greater", *larger), to=TensorProto.INT64)
        return rw.replace(node, [position if view.keepdims else rw.op("Squeeze", position, axes=(axis,))])


def _first_position(node: Node) -> tuple[Reduction, Value, int]:
    """A node that finds the first of equal values of float32, what it reads, and the axis that it looks along."""
    view = Reduction.of(node)
    if view.x.dtype != TensorProto.FLOAT or node.attr("select_last_index", 0):
        raise Decline("{} takes the last of equal values, or not those of float32", node.result.name)
    return view, view.x, view.axes[0]
