"""Operators with one permuted operand: their axes and per-axis lists are permuted to match."""

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
"""Runtimes interpolate along the last two axes."""


def left(gone: Sequence[int], perm: Perm) -> Perm:
    """Restrict a permutation to the axes that remain when the axes `gone`, counted from the front, are removed."""
    kept = [perm[axis] for axis in range(len(perm)) if axis not in gone]
    return tuple(sorted(kept).index(axis) for axis in kept)


def _check_speed(axes: Sequence[int], perm: Perm) -> None:
    """Decline if the operator works along the contiguous axis, the last one, and would no longer do so."""
    last = len(perm) - 1
    if last in axes and last not in [perm[axis] for axis in axes]:
        raise Decline("it would work along an axis that is not contiguous")


def _check_slices(axis: int, perm: Perm) -> None:
    """Decline if the operator copies or adds whole slices, and would have to do so element by element."""
    last = len(perm) - 1
    if perm[axis] == last and axis != last:
        raise Decline("it would select single elements along the last axis")


def _in_order(numbers: Sequence[int] | np.ndarray, perm: Perm) -> np.ndarray:
    """Numbers, one per axis, in the axis order of the source."""
    return np.asarray(numbers)[np.argsort(perm)]


def unchanged(_: Node, perm: Perm) -> Permuted:
    """Elementwise operators, whatever their attributes."""
    return Permuted(perm)


def parts(node: Node, perm: Perm) -> Permuted:
    """`Split` along the same axis, at its new position."""
    return Permuted(perm, {"axis": perm[axis_of(node, perm)]})


def one_axis(node: Node, perm: Perm) -> Permuted:
    """`TopK`, and `Softmax` and the like, which work along one axis and keep it."""
    axes = (axis_of(node, perm),) if node.op == "TopK" else Softmax.of(node, len(perm)).axes
    if len(axes) > 1:
        raise Decline("{} works along {} axes, expected 1", node.op, len(axes))
    (axis,) = axes
    _check_speed([axis], perm)
    return Permuted(perm, {"axis": perm[axis]})


def reduction(node: Node, perm: Perm) -> Permuted:
    """Reductions, `ArgMax` and `ArgMin`, which may drop the axes they reduce."""
    reduced = Reduction.of(node, len(perm))
    _check_speed(reduced.axes, perm)
    axes = sorted(perm[axis] for axis in reduced.axes)
    stated = {"axis": axes[0]} if node.op in POSITIONS else {"axes": axes} if node.ints("axes") else {}
    return Permuted(perm if reduced.keepdims else left(reduced.axes, perm), stated)


def running_sum(node: Node, perm: Perm) -> Permuted:
    """`CumSum` along a constant axis."""
    axes = from_front(node.operand(1).ints(), len(perm), node.operand(0).name)
    if len(axes) != 1:
        raise Decline("{} does not hold a single axis", node.operand(1).name)
    _check_slices(axes[0], perm)
    return Permuted(perm, operands={1: np.array(perm[axes[0]], np.int64)})


def gather(node: Node, perm: Perm) -> Permuted:
    """`Gather` with a list of indices, or with a single one, which drops the axis."""
    rank, axis = node.operand(1).rank, axis_of(node, perm)
    if rank not in (0, 1):
        raise Decline("the indices are not known to have rank 0 or 1")
    if rank:
        _check_slices(axis, perm)
    return Permuted(perm if rank else left([axis], perm), {"axis": perm[axis]})


def repeated(node: Node, perm: Perm) -> Permuted:
    """`Tile` and `Expand` by a constant with one number per axis; the shape of `Expand` may have fewer."""
    numbers = node.operand(1).ints()
    fewer = len(perm) - len(numbers)
    if fewer < 0 or (fewer and node.op == "Tile"):
        raise Decline("{} has {} numbers for {} axes", node.operand(1).name, len(numbers), len(perm))
    return Permuted(perm, operands={1: _in_order((1,) * fewer + numbers, perm)})


def pad(node: Node, perm: Perm) -> Permuted:
    """`Pad`, with its pads stated for all axes."""
    padded = Pad.of(node, len(perm))
    before, after = _in_order(padded.before, perm), _in_order(padded.after, perm)
    return Permuted(perm, {"pads": (*before.tolist(), *after.tolist())}, {3: None})  # the pads name all axes


def cuts(node: Node, perm: Perm) -> Permuted:
    """`Slice` along constant axes, with any starts and ends."""
    axes = Slice.axes_of(node)
    from_front(axes, len(perm), node.operand(0).name)
    return Permuted(perm, {"axes": [perm[axis] for axis in axes]})


def squeeze(node: Node, perm: Perm) -> Permuted:
    """`Squeeze` of stated axes."""
    given = node.ints("axes")
    if not given:
        raise Decline("the axes of size 1 are not known")
    axes = from_front(given, len(perm), node.operand(0).name)
    return Permuted(left(axes, perm), {"axes": sorted(perm[axis] for axis in axes)})


def unsqueeze(node: Node, perm: Perm) -> Permuted:
    """`Unsqueeze`: the new axes come first, since the position of an axis of size 1 does not matter in memory."""
    given = node.ints("axes")
    if not given:
        raise Decline("the new axes are not known")
    rank, count = len(perm) + len(given), len(given)
    axes = from_front(given, rank, node.result.name)
    rest = iter(perm)
    after = tuple(axes.index(axis) if axis in axes else count + next(rest) for axis in range(rank))
    return Permuted(after, {"axes": range(count)})


def resize(node: Node, perm: Perm) -> Permuted:
    """`Resize` by constant scales or sizes, of the last two axes only unless the mode is `nearest`."""
    if node.attr("axes") is not None:
        raise Decline("it has the attribute axes")
    operands: dict[int, Operand] = {}
    resized: set[int] = set()
    for index, value in enumerate(node.inputs[1:], 1):
        if value is None or (value.is_const and value.shape == (0,)):
            continue
        array = value.array()
        if array.shape != (len(perm),):
            raise Decline("{} does not have one number per axis", value.name)
        before = [node.operand(0).dim(axis) if array.dtype.kind == "i" else 1 for axis in range(len(perm))]
        resized |= {perm[axis] for axis, to in enumerate(array) if before[axis] != to}
        operands[index] = _in_order(array, perm)
    last = len(perm) - 1
    if node.attr("mode", "nearest") != "nearest" and any(axis <= last - _IMAGE_AXES for axis in resized):
        raise Decline("it would resize other axes than the last two")
    if node.attr("mode", "nearest") != "nearest" and perm[last] != last:
        raise Decline("it would recompute the weights for each channel")
    return Permuted(perm, operands=operands)


def quantization(node: Node, perm: Perm) -> Permuted:
    """`QuantizeLinear` and `DequantizeLinear`, per tensor or per axis."""
    scales = node.operand(1)
    if scales.rank not in (0, 1) or node.attr("block_size", 0):
        raise Decline("the scales are not known to be per tensor or per axis")
    return Permuted(perm, {"axis": None if scales.shape in ((), (1,)) else perm[axis_of(node, perm)]})


def normalization(node: Node, perm: Perm) -> Permuted:
    """Normalization over the last axes, which must stay in place; scale and bias vary only along these."""
    axis = axis_of(node, perm)
    if any(perm[at] != at for at in range(axis, len(perm))):
        raise Decline("the normalized axes would move")
    if len(node.outputs) > 1:
        raise Decline("the mean or variance output is used")
    for value in node.operands[1:]:
        if value.shape is None or any(dim != 1 for dim in value.shape[: axis - len(perm)]):
            raise Decline("{} is not known to vary along the normalized axes only", value.name)
    return Permuted(perm)
