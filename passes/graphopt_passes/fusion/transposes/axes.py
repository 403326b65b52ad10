"""Operators on one operand, permuted: they work along other axes, and say so in their attributes and lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Pad, Reduction, Slice, Softmax
from graphopt.operators.axes import from_front
from graphopt.operators.reduce import POSITIONS
from graphopt.operators.transpose import Perm
from graphopt_passes.fusion.transposes.permuted import Operand, Permuted, axis_of

_IMAGE_AXES = 2
"""Runtimes resize smoothly along the last two axes."""


def left(gone: Sequence[int], perm: Perm) -> Perm:
    """The permutation of the axes that stay when some, counted from the front, go from under a permutation of all."""
    kept = [perm[axis] for axis in range(len(perm)) if axis not in gone]
    return tuple(sorted(kept).index(axis) for axis in kept)


def _check_speed(axes: Sequence[int], perm: Perm) -> None:
    """See that what was worked along the axis that lies closest together still is."""
    last = len(perm) - 1
    if last in axes and last not in [perm[axis] for axis in axes]:
        raise Decline("it would work along an axis whose elements lie apart")


def _check_slices(axis: int, perm: Perm) -> None:
    """See that what is copied or added in whole slices still is, not element by element."""
    last = len(perm) - 1
    if perm[axis] == last and axis != last:
        raise Decline("it would take single elements along the last axis")


def _in_order(numbers: Sequence[int] | np.ndarray, perm: Perm) -> np.ndarray:
    """One number for each axis, in the order of the source."""
    return np.asarray(numbers)[np.argsort(perm)]


def unchanged(_: Node, perm: Perm) -> Permuted:
    """Operators that treat each element alike, whatever their attributes."""
    return Permuted(perm)


def parts(node: Node, perm: Perm) -> Permuted:
    """`Split`, along the same axis where it lies now."""
    return Permuted(perm, {"axis": perm[axis_of(node, perm)]})


def one_axis(node: Node, perm: Perm) -> Permuted:
    """`TopK`, and softmax and its like, which work along one axis and keep it."""
    axes = (axis_of(node, perm),) if node.op == "TopK" else Softmax.of(node, len(perm)).axes
    if len(axes) > 1:
        raise Decline("{} works along {} axes together", node.op, len(axes))
    (axis,) = axes
    _check_speed([axis], perm)
    return Permuted(perm, {"axis": perm[axis]})


def reduction(node: Node, perm: Perm) -> Permuted:
    """Reductions along some axes, and positions of the largest or smallest along one, which may go."""
    reduced = Reduction.of(node, len(perm))
    _check_speed(reduced.axes, perm)
    axes = sorted(perm[axis] for axis in reduced.axes)
    stated = {"axis": axes[0]} if node.op in POSITIONS else {"axes": axes} if node.ints("axes") else {}
    return Permuted(perm if reduced.keepdims else left(reduced.axes, perm), stated)


def running_sum(node: Node, perm: Perm) -> Permuted:
    """`CumSum` along a constant axis."""
    axes = from_front(node.operand(1).ints(), len(perm), node.operand(0).name)
    if len(axes) != 1:
        raise Decline("{} is not one axis", node.operand(1).name)
    _check_slices(axes[0], perm)
    return Permuted(perm, operands={1: np.array(perm[axes[0]], np.int64)})


def gather(node: Node, perm: Perm) -> Permuted:
    """Positions along one axis: a list of them, or a single one, with which the axis goes."""
    rank, axis = node.operand(1).rank, axis_of(node, perm)
    if rank not in (0, 1):
        raise Decline("the indices are not known to be a list")
    if rank:
        _check_slices(axis, perm)
    return Permuted(perm if rank else left([axis], perm), {"axis": perm[axis]})


def repeated(node: Node, perm: Perm) -> Permuted:
    """`Tile` and `Expand`: a constant number for each axis; a shape to broadcast to may have fewer."""
    numbers = node.operand(1).ints()
    fewer = len(perm) - len(numbers)
    if fewer < 0 or (fewer and node.op == "Tile"):
        raise Decline("{} has {} numbers for {} axes", node.operand(1).name, len(numbers), len(perm))
    return Permuted(perm, operands={1: _in_order((1,) * fewer + numbers, perm)})


def pad(node: Node, perm: Perm) -> Permuted:
    """Pads for each axis."""
    padded = Pad.of(node, len(perm))
    before, after = _in_order(padded.before, perm), _in_order(padded.after, perm)
    return Permuted(perm, {"pads": (*before.tolist(), *after.tolist())}, {3: None})  # all axes, not those that it names


def cuts(node: Node, perm: Perm) -> Permuted:
    """`Slice` along certain axes, wherever it starts and ends."""
    axes = Slice.axes_of(node)
    from_front(axes, len(perm), node.operand(0).name)
    return Permuted(perm, {"axes": [perm[axis] for axis in axes]})


def squeeze(node: Node, perm: Perm) -> Permuted:
    """Axes of size 1 that go."""
    given = node.ints("axes")
    if not given:
        raise Decline("the axes of size 1 are not known")
    axes = from_front(given, len(perm), node.operand(0).name)
    return Permuted(left(axes, perm), {"axes": sorted(perm[axis] for axis in axes)})


def unsqueeze(node: Node, perm: Perm) -> Permuted:
    """Axes of size 1 that come: in front, since where they stand among others does not matter to memory."""
    given = node.ints("axes")
    if not given:
        raise Decline("the new axes are not known")
    rank, count = len(perm) + len(given), len(given)
    axes = from_front(given, rank, node.result.name)
    rest = iter(perm)
    after = tuple(axes.index(axis) if axis in axes else count + next(rest) for axis in range(rank))
    return Permuted(after, {"axes": range(count)})


def resize(node: Node, perm: Perm) -> Permuted:
    """Constant scales or sizes, of the last two axes unless each element is taken from its nearest."""
    if node.attr("axes") is not None:
        raise Decline("it resizes certain axes")
    operands: dict[int, Operand] = {}
    resized: set[int] = set()
    for index, value in enumerate(node.inputs[1:], 1):
        if value is None or (value.is_const and value.shape == (0,)):
            continue
        array = value.array()
        if array.shape != (len(perm),):
            raise Decline("{} crops, or does not hold a number for each axis", value.name)
        before = [node.operand(0).dim(axis) if array.dtype.kind == "i" else 1 for axis in range(len(perm))]
        resized |= {perm[axis] for axis, to in enumerate(array) if before[axis] != to}
        operands[index] = _in_order(array, perm)
    last = len(perm) - 1
    if node.attr("mode", "nearest") != "nearest" and any(axis <= last - _IMAGE_AXES for axis in resized):
        raise Decline("it would resize other axes than the last two")
    if node.attr("mode", "nearest") != "nearest" and perm[last] != last:
        raise Decline("it would compute the weights of each channel anew")
    return Permuted(perm, operands=operands)


def quantization(node: Node, perm: Perm) -> Permuted:
    """`QuantizeLinear` and `DequantizeLinear` with one scale, or one for each position of an axis."""
    scales = node.operand(1)
    if scales.rank not in (0, 1) or node.attr("block_size", 0):
        raise Decline("the scales are not known to be one for each position of an axis")
    return Permuted(perm, {"axis": None if scales.shape in ((), (1,)) else perm[axis_of(node, perm)]})


def normalization(node: Node, perm: Perm) -> Permuted:
    """Normalization along the last axes, which stay where they are; scale and bias vary along them alone."""
    axis = axis_of(node, perm)
    if any(perm[at] != at for at in range(axis, len(perm))):
        raise Decline("the normalized axes would move")
    if len(node.outputs) > 1:
        raise Decline("mean or variance are read")
    for value in node.operands[1:]:
        if value.shape is None or any(dim != 1 for dim in value.shape[: axis - len(perm)]):
            raise Decline("{} is not known to vary along the normalized axes alone", value.name)
    return Permuted(perm)
