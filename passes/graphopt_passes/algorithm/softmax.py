"""`Softmax` along an axis other than the last, or over few values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, floats, joined, size_of
from graphopt_passes.elementwise import ACTIVATIONS

_PAIR = 2


class InnerSoftmax(Weighed, OpRule):
    """Replace a `Softmax` whose axis several others follow, which the runtime transposes element by element.

    Before opset 13 the following axes are normalized together with its own, which is fast.
    """

    opsets = "13-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        dims, axis = x.dims(), x.axis(node.attr("axis", -1))
        floats(x)
        behind = [dim for dim in dims[axis + 1 :] if dim != 1]
        if not behind:
            raise Decline("the normalized elements of {} are contiguous: already fast", x.name)
        if len(behind) == 1:
            raise Decline("there is one axis after axis {} of {}: already fast", axis, x.name)
        check_stands_alone(node)
        return self.write(node, x, axis, rw)

    @abstractmethod
    def write(self, node: Node, x: Value, axis: int, rw: Rewriter) -> Outcome:
        """Write the other form; declines where it is not faster."""


def _by_rows(dims: Sequence[Dim], axis: int) -> Work:
    size = count(dims)
    return {"kernel": 3, "softmax": size, "softmax row": size / count(dims[axis : axis + 1])}


class ConvertSoftmaxOfFew(InnerSoftmax):
    """Replace a `Softmax` over few values, along an axis before several others, with its elementwise definition.

    Its operators process whole rows of the following axes. `convert_softmax_to_rows` handles the other cases.
    """

    ops = ("Softmax",)
    numerics = Numerics.ROUNDING

    def write(self, node: Node, x: Value, axis: int, rw: Rewriter) -> Outcome:
        dims, size = x.dims(), size_of(x)
        reduced = "reduce leading" if all(dim == 1 for dim in dims[:axis]) else "reduce"
        self.weigh(rw, _by_rows(dims, axis), {"kernel": 5, "element": 3 * size, reduced: 2 * size})
        return rw.replace(node, [spelled_out(x, axis, rw)])


def spelled_out(x: Value, axis: int, rw: Rewriter) -> Value:
    """The definition of `Softmax`, with the maximum subtracted first."""
    powers = rw.op("Exp", rw.op("Sub", x, rw.op("ReduceMax", x, axes=(axis,))))
    return rw.op("Div", powers, rw.op("ReduceSum", powers, axes=(axis,)))


class ConvertSoftmaxToRows(InnerSoftmax):
    """Merge the axes after that of a `Softmax` or `LogSoftmax` into one, or transpose its axis to the end.

    For both forms the runtime has a kernel that is as exact, and 2 to 9 times as fast. `graphopt tune
    convert_softmax_to_rows` measures this machine for all passes that write faster forms of operators.
    """

    ops = ("Softmax", "LogSoftmax")
    numerics = Numerics.EXACT
    tuner = "graphopt_passes.algorithm.probes:RatesTuner"

    def write(self, node: Node, x: Value, axis: int, rw: Rewriter) -> Outcome:
        """Reshape if a constant can state the sizes, else transpose."""
        dims = x.dims()
        now, then = {"kernel": 1, "softmax apart": size_of(x)}, _by_rows(dims, axis)
        try:
            flat = Reshape.to(x, (_joined(dims[:axis]), dims[axis], _joined(dims[axis + 1 :]))).write(rw)
            made = Reshape.to(rw.op(node.op_type, flat, axis=1), dims).write(rw)
        except Decline:
            then = {**then, "move": 2 * size_of(x)}
            made = along_last(node, x, axis, rw)
        self.weigh(rw, now, then)
        return rw.replace(node, [made])


def along_last(node: Node, x: Value, axis: int, rw: Rewriter) -> Value:
    """Write a `Softmax` or `LogSoftmax` with its axis transposed to the end and back."""
    last = Transpose(x, (*(at for at in range(len(x.dims())) if at != axis), axis))
    return Transpose(rw.op(node.op_type, last.write(rw), axis=-1), last.inverse).write(rw)


def _joined(dims: Sequence[Dim]) -> Dim:
    """The size of merged axes: a number, a symbol, or None."""
    long = [dim for dim in dims if dim != 1]
    if len(long) == 1:
        return long[0]
    return joined(long)


class ConvertSoftmaxOfPairsToSigmoid(Weighed, OpRule):
    """Replace a `Softmax` over a last axis of size 2 with the `Sigmoid` of differences, computed by one small product.

    The kernel is called once per row. For infinite operands, a result that was NaN may become a number.
    """

    ops = ("Softmax",)
    opsets = "13-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        rank = len(x.dims())
        if x.dtype != TensorProto.FLOAT or rank < 2 or x.axis(node.attr("axis", -1)) != rank - 1:
            raise Decline("{} is not float32, or not normalized along its last axis", x.name)
        if x.size(rank - 1) != _PAIR:
            raise Decline("there are {} elements in each row of {}, expected 2", x.size(rank - 1), x.name)
        size = size_of(x)
        now = {"kernel": 1, "softmax": size, "softmax row": size / _PAIR}
        self.weigh(rw, now, {"kernel": 2, "column": size, "element": size})
        differences = np.array([[1, -1], [-1, 1]], np.float32)
        return rw.replace(node, [rw.op("Sigmoid", rw.op("MatMul", x, differences))])


class ConvertSoftmaxOfTwoToSigmoids(Weighed, OpRule):
    """Replace a `Softmax` over an inner axis of size 2 with the `Sigmoid` of the difference and of its negation.

    For infinite operands, a result that was NaN may become a number.
    """

    ops = ("Softmax",)
    opsets = "13-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        dims, axis = x.dims(), x.axis(node.attr("axis", -1))
        behind = [dim for dim in dims[axis + 1 :] if dim != 1]
        if x.dtype != TensorProto.FLOAT or dims[axis] != _PAIR or not behind:
            raise Decline("{} is not float32 with size 2 along an axis before the last", x.name)
        size = size_of(x)
        now = {"kernel": 1, "softmax apart": size} if len(behind) > 1 else {**_by_rows(dims, axis), "kernel": 1}
        self.weigh(rw, now, {"kernel": 6, "element": 3.5 * size})
        first, second = rw.outputs(_PAIR, "Split", x, axis=axis, split=(1, 1))
        difference = rw.op("Sub", first, second)
        halves = rw.op("Sigmoid", difference), rw.op("Sigmoid", rw.op("Neg", difference))
        return rw.replace(node, [rw.op("Concat", *halves, axis=axis)])


class ConvertSoftmaxMeanToProduct(Weighed, OpRule):
    """Replace the mean of constants weighted by a `Softmax` over channels with a product with the constants and ones.

    Detectors compute box sides like this: a `Softmax` over 16 bins, and a 1x1 `Conv` with the bins' numbers.
    """

    ops = ("Conv",)
    opsets = "13-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        softmax, numbers = _weighed_mean(node)
        x = softmax.operand(0)
        dims = x.dims()
        size, fixed = size_of(x), isinstance(dims[0], int)
        now = {**_by_rows(dims, 1), "kernel": 4, "element": size, "read": size}
        self.weigh(rw, now, {"kernel": 7, "reduce": size, "element": 2 * size, "read": size})
        x, axis = _before_move(x, softmax)
        largest = rw.op("ReduceMax", x, axes=(axis,), keepdims=1)
        powers = rw.op("Exp", rw.op("Sub", x, largest))
        above, below = (self._sums if fixed else self._sums_of_any)(powers, numbers, axis, rw)
        kept = None if fixed else [1 if at == axis else dim for at, dim in enumerate(x.dims())]
        mean = Reshape.to(rw.op("Div", above, below), (dims[0], 1, *dims[2:]), before=kept)
        return rw.replace(node, [mean.write(rw)])

    def _sums(self, powers: Value, numbers: np.ndarray, axis: int, rw: Rewriter) -> Sequence[Value]:
        """The sum of exponentials weighted by the constants, and their plain sum, by one `MatMul`."""
        if axis == 1:
            powers = rw.op("Reshape", powers, np.array((0, len(numbers), -1), np.int64))
        both = rw.op("MatMul", np.stack((numbers, np.ones_like(numbers))), powers)
        return rw.outputs(_PAIR, "Split", both, axis=axis, split=(1, 1))

    def _sums_of_any(self, powers: Value, numbers: np.ndarray, axis: int, rw: Rewriter) -> Sequence[Value]:
        """The same sums for a batch that may be empty, which `MatMul` rejects as its right operand."""
        weighed = rw.op("Mul", powers, numbers.reshape(-1, *(1,) * (3 - axis)))
        return tuple(rw.op("ReduceSum", each, axes=(axis,), keepdims=1) for each in (weighed, powers))


def _weighed_mean(node: Node) -> tuple[Node, np.ndarray]:
    """The `Softmax` over channels that a convolution reads, and the constants that it averages; declines otherwise."""
    softmax = node.operand(0).sole_source("Softmax", reader=node)
    x, weight = softmax.operand(0), node.operand(1)
    if len(x.dims()) != 4 or x.dtype != TensorProto.FLOAT or x.axis(softmax.attr("axis", -1)) != 1:
        raise Decline("{} is not a float32 image that is normalized along its channels", x.name)
    bins = x.size(1)
    plain = not any(node.attr("pads") or ()) and set(node.attr("strides") or (1,)) == {1}
    if weight.dims() != (1, bins, 1, 1) or node.input(2) is not None or not plain:
        raise Decline("{} is not a weighted mean of {}", node.result.name, softmax.result.name)
    numbers = weight.array().reshape(bins)
    if not np.abs(numbers).sum(dtype=np.float64) <= np.finfo(np.float32).max:
        raise Decline("sums of exponentials weighted by {} may overflow", weight.name)
    if node.result.read_by(*_FUSED):
        raise Decline("the reader of {} will be fused into the convolution", node.result.name)
    return softmax, numbers


_FUSED = (*ACTIVATIONS, "Add", "Clip")
"""Operators that are fused into the convolution as `FusedConv`, before the mean is recognized."""


def check_stands_alone(softmax: Node) -> None:
    """Decline if a `Softmax` is replaced together with the convolution that computes a mean from it."""
    reader = softmax.result.read_by("Conv")
    if reader is None:
        return
    try:
        _weighed_mean(reader)
    except Decline:
        return
    raise Decline("{} is part of a weighted mean", softmax.result.name)


def _before_move(x: Value, reader: Node) -> tuple[Value, int]:
    """The operand before a `Transpose` of the bins from axis 2 to 1, or the value itself; and the axis of the bins."""
    producer = x.producer
    if producer is not None and producer.graph is reader.graph and producer.op == "Transpose" and x.one_use:
        view = Transpose.of(producer)
        if view.perm == (0, 2, 1, 3):
            return view.x, 2
    return x, 1
