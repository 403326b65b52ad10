"""Pooling: windows that extend beyond the padding, and dilated windows."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Pool
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import Step, down, number_like, typed
from graphopt.rewrite import Rewriter

_MOST_CELLS = 128
"""Most elements of a dilated window that is written out."""


@down(10, "AveragePool", "MaxPool")
@down(18, "LpPool")
@down(19, "AveragePool")
def whole_windows(node: Node, change: Change, rw: Rewriter) -> Step:
    """Write out dilated windows; replace ceil_mode with padding."""
    gaps = any(each != 1 for each in node.attr("dilations") or ())
    if gaps:
        _cell_by_cell(node, rw)
        return None
    if change.version in (10, 18) and node.attr("ceil_mode", 0):
        _padded(node, rw)
    if node.attrs.get("dilations") is not None:
        rw.set_attr(node, dilations=None)
    return automatic.down(node, change, rw)


@down(22, "AveragePool", "LpPool", "MaxPool")
def windows_behind_the_image(node: Node, change: Change, rw: Rewriter) -> Step:
    """Replace ceil_mode with padding if a window would start beyond the image.

    Before opset 22 shape inference counts that window, though no runtime computes it.
    """
    if node.attr("ceil_mode", 0):
        with suppress(Decline):
            pool = _of(node)
            if any(count < _rounded_up(pool, axis) for axis, (_, count, _) in enumerate(_extents(pool))):
                _padded(node, rw)
    return automatic.down(node, change, rw)


def _rounded_up(pool: Pool, axis: int) -> int:
    """The number of windows, including those that start beyond the image."""
    whole = pool.x.size(axis + 2) + pool.before[axis] + pool.after[axis]
    return -(-(whole - pool.reach[axis]) // pool.strides[axis]) + 1


def _extents(pool: Pool) -> list[tuple[int, int, int]]:
    """For each spatial axis its size, the number of windows, and how far the last one extends beyond the padding."""
    found = []
    for axis, reach in enumerate(pool.reach):
        size = pool.x.size(axis + 2)
        whole, stride = size + pool.before[axis] + pool.after[axis], pool.strides[axis]
        count = (whole - reach) // stride + 1
        if pool.ceil:
            count = _rounded_up(pool, axis)
            if (count - 1) * stride >= size + pool.before[axis]:
                count -= 1
        found.append((size, count, (count - 1) * stride + reach - whole))
    return found


def _padded(node: Node, rw: Rewriter) -> None:
    """Replace ceil_mode with the padding that it implies."""
    pool = _of(node)
    if pool.same:
        rw.set_attr(node, ceil_mode=None)
        return
    more = [max(extent[2], 0) for extent in _extents(pool)]
    after = tuple(old + extra for old, extra in zip(pool.after, more, strict=True))
    if any(more) and pool.op != "MaxPool" and (pool.counts_padding or pool.op == "LpPool"):
        raise Decline("ceil_mode=1 counts padding that pads cannot express")
    if any(pad >= size for pad, size in zip(after, pool.kernel, strict=True)):
        raise Decline("without ceil_mode, a pad would be as large as the window")
    rw.set_attr(node, ceil_mode=None, pads=pool.before + after, auto_pad=None)


def _of(node: Node) -> Pool:
    if (indices := node.output(1)) is not None and indices.uses:
        raise Decline("Indices is used, which the expanded form does not compute")
    return Pool.of(node)


def _cell_by_cell(node: Node, rw: Rewriter) -> None:
    """Combine slices of the image, one for each position in the window."""
    pool = _of(node)
    if pool.same or math.prod(pool.kernel) > _MOST_CELLS:
        raise Decline("dilations={} cannot be expanded with auto_pad or so large a window", pool.dilations)
    extents, x = _extents(pool), pool.x
    op = typed(rw, x)
    power = node.attr("p", 2)
    if pool.op == "LpPool":
        x = op("Pow", op("Abs", x), power)
    before = (0, 0, *pool.before)
    after = (0, 0, *(old + max(extent[2], 0) for old, extent in zip(pool.after, extents, strict=True)))
    if any(before + after):
        kind = number_like(pool.x, 0).dtype
        low = -math.inf if kind.kind == "f" else np.iinfo(kind).min
        x = rw.op("Pad", x, pads=before + after, constant_value=np.asarray(low if pool.op == "MaxPool" else 0, kind))
    counts = [extent[1] for extent in extents]
    cells = [_cell(rw, x, pool, counts, at) for at in itertools.product(*map(range, pool.kernel))]
    result = rw.op("Max" if pool.op == "MaxPool" else "Sum", *cells)
    if pool.op == "AveragePool":
        result = rw.op("Div", result, _counted(pool, extents).astype(number_like(pool.x, 0).dtype))
    rw.replace(node, [op("Pow", result, 1 / power) if pool.op == "LpPool" else result])


def _counted(pool: Pool, extents: list[tuple[int, int, int]]) -> np.ndarray:
    """The divisor of each window: the number of its elements in the image, or in the image and its padding."""
    whole = np.ones((1, 1), np.int64)
    for axis, (size, count, _) in enumerate(extents):
        places = np.arange(count)[:, None] * pool.strides[axis] + np.arange(pool.kernel[axis]) * pool.dilations[axis]
        low, high = (0, size + pool.before[axis] + pool.after[axis])
        if not pool.counts_padding:
            low, high = pool.before[axis], pool.before[axis] + size
        inside = ((places >= low) & (places < high)).sum(axis=1)
        whole = whole[..., None] * inside
    return whole


def _cell(rw: Rewriter, x: Value, pool: Pool, counts: list[int], at: tuple[int, ...]) -> Value:
    starts = [place * apart for place, apart in zip(at, pool.dilations, strict=True)]
    ends = [start + (count - 1) * stride + 1 for start, count, stride in zip(starts, counts, pool.strides, strict=True)]
    axes = range(2, 2 + len(starts))
    return rw.op("Slice", x, starts=starts, ends=ends, axes=list(axes), steps=pool.strides)
