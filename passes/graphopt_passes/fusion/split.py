"""Parts of a tensor along one axis, taken in one step."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.operators import Slice
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import constant_ints

_MOST_READERS = 256
"""A value with more readers than this is not looked at, and no sequence of more parts."""

SPLIT_BY_INPUT = 13
"""From this opset on `Split` reads its sizes."""

_ONLY_TAKEN = ("ConcatFromSequence", "SequenceAt", "SequenceLength")
"""Readers of a sequence that see through its construction."""


def split_into(rw: Rewriter, x: Value, axis: int, sizes: list[int]) -> tuple[Value, ...]:
    """The parts of a value along one axis, in either opset form of `Split`.

    Args:
        rw: the gate.
        x: the value.
        axis: the axis.
        sizes: of the parts, in order; at least one, and their sum is the size of the axis.
    """
    if rw.graph.opset() < SPLIT_BY_INPUT:
        parts = rw.op("Split", x, outputs=len(sizes), axis=axis, split=tuple(sizes))
    else:
        parts = rw.op("Split", x, np.array(sizes, np.int64), outputs=len(sizes), axis=axis)
    return parts if isinstance(parts, tuple) else (parts,)


class FuseSlicesIntoSplit(OpRule):
    """Join `Slice` nodes that together take all of a value along one axis into one `Split`.

    Two or more of them, with constant bounds, steps of 1 and a known size: each element belongs to exactly one.
    Other readers of the value, and slices along other axes, do not matter.
    """

    name = "fuse_slices_into_split"
    ops = ("Slice",)
    opsets = "2-"
    peers: ClassVar[dict[str, str]] = {"onnxscript": "SlicesSplit", "onnxruntime": "GatherSliceToSplitFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Sort the slices of the value by where they start."""
        x = node.input(0)
        if x is None or x.is_const or not 2 <= len(x.users) <= _MOST_READERS:
            return None
        found = _part(node, x)
        if found is None:
            return None
        if isinstance(found, Mismatch):
            return found
        axis = found[0]
        parts: dict[tuple[int, int], list[Node]] = {}
        for user in x.users:
            cut = _part(user, x) if user.op == "Slice" and user.graph is node.graph else None
            if isinstance(cut, tuple) and cut[0] == axis:
                parts.setdefault(cut[1:], []).append(user)
        spans = sorted(parts)
        if len(spans) < 2:
            return None
        if [0, *(end for _, end in spans)] != [*(start for start, _ in spans), _size(x, axis)]:
            return Mismatch("the slices of {} along axis {} overlap or leave something out", x.name, axis)
        made = split_into(rw, x, axis, [end - start for start, end in spans])
        pairs = [(user, [value]) for span, value in zip(spans, made, strict=True) for user in parts[span]]
        return rw.replace_all(pairs, anchor=min((user for user, _ in pairs), key=lambda n: n.order))


def _size(x: Value, axis: int) -> int | None:
    size = x.shape[axis] if x.shape is not None and axis < len(x.shape) else None
    return size if isinstance(size, int) else None


def _part(node: Node, x: Value) -> tuple[int, int, int] | Mismatch | None:
    """Axis, start and end of a `Slice` that takes a part of one axis that is not empty; None when it does not."""
    if node.input(0) is not x or node.outputs[0] is None:
        return None
    if x.shape is None:
        return Mismatch("the rank of {} is not known", x.name)
    cuts = Slice.of(node).cuts
    if len(cuts) != 1:
        return None
    (axis, cut), *_ = cuts.items()
    size = _size(x, axis)
    if size is None:
        return Mismatch("the size of axis {} of {} is not known", axis, x.name)
    if cut.step != 1:
        return None
    start, end, _ = slice(cut.start, cut.end).indices(size)
    return (axis, start, end) if start < end else None


class ReplaceSplitToSequence(OpRule):
    """Turn `SplitToSequence` into `Split`, where all that is done with the sequence is to take its elements.

    The size of the axis and the sizes of the parts have to be known, and every reader is a `SequenceAt` with a
    constant position, a `SequenceLength` or a `ConcatFromSequence`.
    """

    name = "replace_split_to_sequence"
    ops = ("SplitToSequence",)
    opsets = "11-"
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Work out the sizes of the parts."""
        x, sequence = node.input(0), node.outputs[0]
        if x is None or sequence is None:
            return None
        if sequence.output_count or any(not _takes(user) for user in sequence.users):
            return Mismatch("{} is used as a sequence", sequence.name)
        axis = node.attr("axis", 0)
        if x.shape is None or not -len(x.shape) <= axis < len(x.shape):
            return Mismatch("the rank of {} is not known", x.name)
        axis %= len(x.shape)
        sizes = _sizes(node, x, axis)
        if isinstance(sizes, Mismatch):
            return sizes
        parts: tuple[Value, ...] = split_into(rw, x, axis, sizes) if len(sizes) > 1 else (x,)
        if node.input(1) is None and not node.attr("keepdims", 1):
            axes = np.array([axis], np.int64)
            by_input = node.graph.opset() >= SPLIT_BY_INPUT
            parts = tuple(rw.op("Squeeze", v, axes) if by_input else rw.op("Squeeze", v, axes=(axis,)) for v in parts)
        return rw.replace(node, [rw.op("SequenceConstruct", *parts)])


def _takes(user: Node) -> bool:
    if user.op not in _ONLY_TAKEN:
        return False
    position = user.input(1)
    return user.op != "SequenceAt" or (position is not None and position.is_const)


def _sizes(node: Node, x: Value, axis: int) -> list[int] | Mismatch:
    """The sizes of the parts; every one is at least 1 but where they are listed."""
    size, stated = _size(x, axis), node.input(1)
    if size is None:
        return Mismatch("the size of axis {} of {} is not known", axis, x.name)
    given = constant_ints(stated) if stated is not None else (1,)
    if isinstance(given, Mismatch):
        return given
    if stated is not None and stated.rank != 0:
        if sum(given) != size or not given or min(given) < 0:
            return Mismatch("sizes {} do not add up to {}", given, size)
        return list(given)
    step = given[0]
    if step < 1 or not 1 <= size <= step * _MOST_READERS:
        return Mismatch("{} is cut into parts of {}", size, step)
    return [min(step, size - start) for start in range(0, size, step)]
