"""Parts of what was joined just before."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.operators import Slice
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list, made_by

_MOST_BYTES = 1 << 16
Span = tuple[int, int]


class EliminatePartOfConcat(OpRule):
    """Take a part from the one input of a `Concat` that it lies in, instead of from the whole.

    `Gather` and `Slice` along the axis of the `Concat`, with constant positions, and `Split` at the very places where
    the inputs meet. The `Concat` stays for its other readers, where it has any.
    """

    name = "eliminate_part_of_concat"
    ops = ("Gather", "Slice", "Split")
    opsets = "2-"
    peers: ClassVar[dict[str, str]] = {"onnxsim": "rewrite_gather_over_concat"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find the input that the part lies in."""
        value = node.inputs[0]
        concat = made_by(value, "Concat")
        if value is None or concat is None or len(concat.inputs) < 2:
            return None
        if concat.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if value.shape is None:
            return Mismatch("the rank of {} is not known", value.name)
        rank = len(value.shape)
        axis = concat.attr("axis", 1) % rank if rank else 0
        if node.op == "Split":
            return _split(node, concat, axis, rank, rw)
        return _gather(node, concat, axis, rank, rw) if node.op == "Gather" else _slice(node, concat, axis, rank, rw)


def _places(concat: Node, axis: int) -> list[tuple[Value, Span]]:
    """Where each input lies in the result, as far as sizes are known from the front."""
    found: list[tuple[Value, Span]] = []
    start = 0
    for value in concat.inputs:
        size = value.shape[axis] if value is not None and value.shape is not None else None
        if value is None or not isinstance(size, int):
            break
        found.append((value, (start, start + size)))
        start += size
    return found


def _holder(concat: Node, axis: int, first: int, last: int) -> tuple[Value, Span] | Mismatch:
    """The input in which positions from `first` to `last` lie."""
    for value, (start, end) in _places(concat, axis):
        if start <= first and last < end:
            return value, (start, end)
    return Mismatch("positions {} to {} are not known to lie in one of the inputs", first, last)


def _from_front(number: int, value: Value, axis: int) -> int | None:
    size = value.shape[axis] if value.shape is not None else None
    if number >= 0:
        return number
    return number + size if isinstance(size, int) else None


def _gather(node: Node, concat: Node, axis: int, rank: int, rw: Rewriter) -> Outcome:
    whole, indices = node.inputs[0], node.inputs[1]
    if whole is None or indices is None or node.attr("axis", 0) % rank != axis:
        return None
    array = indices.const(_MOST_BYTES)
    if array is None or not array.size:
        return Mismatch("{} is not constant", indices.name)
    found = [_from_front(int(number), whole, axis) for number in array.reshape(-1)]
    positions = [number for number in found if number is not None and number >= 0]
    if len(positions) < len(found):
        return Mismatch("the size of axis {} of {} is not known", axis, whole.name)
    holder = _holder(concat, axis, min(positions), max(positions))
    if isinstance(holder, Mismatch):
        return holder
    source, (start, _) = holder
    moved = np.array(positions, array.dtype).reshape(array.shape) - array.dtype.type(start)
    return rw.replace(node, [rw.op("Gather", source, np.asarray(moved), axis=axis)])


def _slice(node: Node, concat: Node, axis: int, rank: int, rw: Rewriter) -> Outcome:
    whole = node.inputs[0]
    cuts = Slice.of(node).cuts
    if whole is None or list(cuts) != [axis]:
        return None
    cut = cuts[axis]
    start, end = _from_front(cut.start, whole, axis), _from_front(cut.end, whole, axis)
    size = whole.shape[axis] if whole.shape is not None else None
    if start is None or end is None or (end > (1 << 31) - 2 and not isinstance(size, int)):
        return Mismatch("the size of axis {} of {} is not known", axis, whole.name)
    end = min(end, size) if isinstance(size, int) else end
    if cut.step != 1 or not 0 <= start < end:
        return None
    holder = _holder(concat, axis, start, end - 1)
    if isinstance(holder, Mismatch):
        return holder
    source, (first, last) = holder
    if (start, end) == (first, last):
        return rw.replace(node, [source])
    bounds = ([start - first], [end - first], [axis])
    if node.graph.opset() < 10:
        starts, ends, axes = map(tuple, bounds)
        return rw.replace(node, [rw.op("Slice", source, starts=starts, ends=ends, axes=axes)])
    return rw.replace(node, [rw.op("Slice", source, *(np.array(each, np.int64) for each in bounds))])


def _split(node: Node, concat: Node, axis: int, rank: int, rw: Rewriter) -> Outcome:
    if node.attr("axis", 0) % rank != axis:
        return None
    sizes = int_list(node, "split", 1, 13)
    if isinstance(sizes, Mismatch):
        return sizes
    places = _places(concat, axis)
    if len(places) < len(concat.inputs):
        return Mismatch("the sizes of the inputs of the Concat are not known")
    parts = [end - start for _, (start, end) in places]
    wanted = list(sizes) if sizes is not None else _even(sum(parts), len(node.outputs))
    if wanted != parts or len(node.outputs) != len(parts):
        return Mismatch("it parts {} where {} were joined", wanted, parts)
    return rw.replace(node, [value for value, _ in places])


def _even(size: int, count: int) -> list[int]:
    """The sizes of parts that a `Split` makes when none are given."""
    each = -(-size // count)
    return [max(min(each, size - each * number), 0) for number in range(count)]
