"""Gathers that together take all of a tensor along one axis."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.split import SPLIT_BY_INPUT, split_into

_MOST_READERS = 256
_MOST_BYTES = 1 << 16

_FEWEST_RUNS = 64
"""A `Gather` copies as many runs; with fewer of them the nodes that are added take what is saved: two positions of 32
runs took 6.31 us gathered and 6.43 us split, of 128 runs 7.53 and 6.51, of 603 000 runs 9714 and 437 (one thread)."""

_LONGEST_RUN = 32
"""Elements from which on copying itself takes the time: 256 runs of 16 took 12.5 us gathered and 8.0 us split, of 64
12.9 and 11.7."""

_UNKNOWN_SIZE = 16
"""What a dimension is taken for that is not known."""

_SPLIT_TYPES = frozenset({
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT16,
    TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32,
    TensorProto.UINT64, TensorProto.BOOL,
})  # fmt: skip
"""Element types that ONNX Runtime splits at every opset; it gathers more."""


class FuseGathersIntoSplit(OpRule):
    """Join `Gather` nodes that together take every position of an axis into one `Split`.

    Each takes one position, by a constant scalar (then a `Squeeze` follows) or a list of one. A `Gather` copies run
    by run: the real and the imaginary part of a spectrum, or the four numbers of a box, are runs of one element. Where
    the axis is one of the first, or the runs are long, nothing would be gained, and the nodes stay.
    """

    name = "fuse_gathers_into_split"
    ops = ("Gather",)
    opsets = "2-"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "GatherSliceToSplitFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Sort the gathers of the value by position."""
        x = node.input(0)
        if x is None or x.is_const or not 2 <= len(x.users) <= _MOST_READERS:
            return None
        found = _position(node, x)
        if found is None or isinstance(found, Mismatch):
            return found
        axis, size, first = found
        if first:
            return None  # one of them asks for all
        taken: dict[int, list[Node]] = {}
        for user in x.users:
            place = _position(user, x) if user.op == "Gather" and user.graph is node.graph else None
            if isinstance(place, tuple) and place[0] == axis:
                taken.setdefault(place[2], []).append(user)
        if len(taken) < 2:
            return None
        if len(taken) != size:
            return Mismatch("the gathers of {} along axis {} leave something out", x.name, axis)
        problem = _price(x, axis)
        if problem is not None:
            return problem
        pairs = []
        for part, users in zip(split_into(rw, x, axis, [1] * size), (taken[i] for i in range(size)), strict=True):
            pairs += [(user, [_in_form(rw, part, axis, user)]) for user in users]
        return rw.replace_all(pairs, anchor=min((user for user, _ in pairs), key=lambda n: n.order))


def _position(node: Node, x: Value) -> tuple[int, int, int] | Mismatch | None:
    """Axis, its size and the position that a `Gather` takes from it; None when it takes several, or unknown ones."""
    indices = node.input(1)
    if node.input(0) is not x or node.outputs[0] is None or indices is None:
        return None
    array = indices.const(_MOST_BYTES)
    if array is None or array.ndim > 1 or array.size != 1:
        return None
    axis = node.attr("axis", 0)
    if x.shape is None or not -len(x.shape) <= axis < len(x.shape):
        return Mismatch("the rank of {} is not known", x.name)
    axis %= len(x.shape)
    size = x.shape[axis]
    if not isinstance(size, int):
        return Mismatch("the size of axis {} of {} is not known", axis, x.name)
    position = int(array.reshape(-1)[0])
    return (axis, size, position % size) if -size <= position < size else None


def _price(x: Value, axis: int) -> Mismatch | None:
    """Why a `Split` would not be faster, or not run."""
    assert x.shape is not None
    if x.dtype not in _SPLIT_TYPES:
        return Mismatch("{} is of a type that not every opset splits", x.name)
    run = math.prod(dim if isinstance(dim, int) else _LONGEST_RUN + 1 for dim in x.shape[axis + 1 :])
    runs = math.prod(dim if isinstance(dim, int) else _UNKNOWN_SIZE for dim in x.shape[:axis])
    if run > _LONGEST_RUN or runs < _FEWEST_RUNS:
        return Mismatch("{} runs of {} elements are gathered as fast", runs, run)
    return None


def _in_form(rw: Rewriter, part: Value, axis: int, node: Node) -> Value:
    """A part as a `Gather` gives it: without its axis where the position is a scalar."""
    indices = node.inputs[1]
    assert indices is not None
    if indices.rank == 1:
        return part
    squeezed: Value
    if rw.graph.opset() < SPLIT_BY_INPUT:
        squeezed = rw.op("Squeeze", part, axes=(axis,))
    else:
        squeezed = rw.op("Squeeze", part, np.array([axis], np.int64))
    return squeezed
