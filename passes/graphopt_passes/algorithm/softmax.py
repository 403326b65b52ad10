"""`Softmax` along an axis in front of others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.algorithm.work import Weighed, Work, count, size_of

_PAIR = 2


class InnerSoftmax(Weighed, OpRule):
    """Another form of a `Softmax` with several axes behind its own, which the runtime moves element by element.

    Before opset 13 the axes behind are normalized together with its own, which is fast.
    """

    opsets = "13-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """See whether it is one, and whether the other form is faster."""
        x = node.operand(0)
        dims, axis = x.dims(), x.axis(node.attr("axis", -1))
        if x.dtype != TensorProto.FLOAT:
            raise Decline("{} is not of float32, whose kernels were measured", x.name)
        behind = [dim for dim in dims[axis + 1 :] if dim != 1]
        if not behind:
            raise Decline("the values of {} lie one after the other: already fast", x.name)
        if len(behind) == 1:
            raise Decline("there is one axis behind axis {} of {}: already fast", axis, x.name)
        size_of(x)
        return self.write(node, x, axis, rw)

    @abstractmethod
    def write(self, node: Node, x: Value, axis: int, rw: Rewriter) -> Outcome:
        """The other form, where it is faster."""


def _by_rows(dims: Sequence[Dim], axis: int) -> Work:
    size = count(dims)
    return {"kernel": 3, "softmax": size, "softmax row": size / count(dims[axis : axis + 1])}


class ConvertSoftmaxOfFew(InnerSoftmax):
    """Compute a `Softmax` of a few values each, in front of several axes, by elementwise operators and reductions.

    They work along whole rows of what is behind the axis. `convert_softmax_to_rows` does the other cases.
    """

    name = "convert_softmax_of_few"
    ops = ("Softmax",)
    numerics = Numerics.ROUNDING

    def write(self, node: Node, x: Value, axis: int, rw: Rewriter) -> Outcome:
        """The definition of the operator, with the largest value taken off first."""
        dims, size = x.dims(), size_of(x)
        reduced = "reduce leading" if all(dim == 1 for dim in dims[:axis]) else "reduce"
        self.weigh(rw, _by_rows(dims, axis), {"kernel": 5, "element": 3 * size, reduced: 2 * size})
        powers = rw.op("Exp", rw.op("Sub", x, rw.op("ReduceMax", x, axes=(axis,))))
        return rw.replace(node, [rw.op("Div", powers, rw.op("ReduceSum", powers, axes=(axis,)))])


class ConvertSoftmaxToRows(InnerSoftmax):
    """Compute a `Softmax` or `LogSoftmax` in front of several axes with these as one, or with its own axis last.

    The kernel that the runtime has for both is as exact and 2 to 9 times as fast as what it does otherwise. `graphopt
    tune convert_softmax_to_rows` measures this machine for all passes that write other forms of slow operators.
    """

    name = "convert_softmax_to_rows"
    ops = ("Softmax", "LogSoftmax")
    numerics = Numerics.EXACT
    tuner = "graphopt_passes.algorithm.probes:RatesTuner"

    def write(self, node: Node, x: Value, axis: int, rw: Rewriter) -> Outcome:
        """Reshape where the sizes can be written down, transpose where not."""
        dims = x.dims()
        now, then = {"kernel": 1, "softmax apart": size_of(x)}, _by_rows(dims, axis)
        try:
            flat = Reshape.to(x, (_joined(dims[:axis]), dims[axis], _joined(dims[axis + 1 :]))).write(rw)
            made = Reshape.to(rw.op(node.op_type, flat, axis=1), dims).write(rw)
        except Decline:
            then = {**then, "move": 2 * size_of(x)}
            last = Transpose(x, (*(at for at in range(len(dims)) if at != axis), axis))
            made = Transpose(rw.op(node.op_type, last.write(rw), axis=-1), last.inverse).write(rw)
        self.weigh(rw, now, then)
        return rw.replace(node, [made])


def _joined(dims: Sequence[Dim]) -> Dim:
    """The size of axes that become one: a number, a name, or None."""
    long = [dim for dim in dims if dim != 1]
    if len(long) == 1:
        return long[0]
    return count(long) if all(isinstance(dim, int) for dim in long) else None


class ConvertSoftmaxOfPairsToSigmoid(Weighed, OpRule):
    """Compute a `Softmax` of two last values each as the `Sigmoid` of their differences, by one small product.

    The kernel starts anew for each row. Of two infinities the difference is taken as it is, so that what was no number
    may be one.
    """

    name = "convert_softmax_of_pairs_to_sigmoid"
    ops = ("Softmax",)
    opsets = "13-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Both differences of a pair."""
        x = node.operand(0)
        rank = len(x.dims())
        if x.dtype != TensorProto.FLOAT or rank < 2 or x.axis(node.attr("axis", -1)) != rank - 1:
            raise Decline("{} is not of float32, or not normalized along its last axis", x.name)
        if x.size(rank - 1) != _PAIR:
            raise Decline("there are {} values in each row of {}: already fast", x.size(rank - 1), x.name)
        size = size_of(x)
        now = {"kernel": 1, "softmax": size, "softmax row": size / _PAIR}
        self.weigh(rw, now, {"kernel": 2, "column": size, "element": size})
        differences = np.array([[1, -1], [-1, 1]], np.float32)
        return rw.replace(node, [rw.op("Sigmoid", rw.op("MatMul", x, differences))])
