"""Interpolation of images at any coordinates: neighbours are gathered, and summed with weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers
from graphopt.opsets.meanings.elementary import rounded
from graphopt.opsets.meanings.positions import Counting
from graphopt.opsets.meanings.registry import Step, down, number_like, typed
from graphopt.opsets.meanings.reshaping import reshaped
from graphopt.rewrite import Rewriter

_CUBIC = -0.75
Op = Callable[..., Value]
Taps = list[tuple[Value, Value | None]]
"""Positions along an axis with their weights; None is a weight of 1."""


@dataclass(frozen=True, slots=True)
class _Image:
    """An image whose elements are gathered.

    Attributes:
        rw: the gate.
        op: builds operators of its element type.
        rows: the image as a matrix: batch and positions as rows, channels as columns.
        sizes: its size along each spatial axis.
        dtype: its element type.
    """

    rw: Rewriter
    op: Op
    rows: Value
    sizes: tuple[int, ...]
    dtype: int

    @classmethod
    def of(cls, x: Value, rw: Rewriter) -> _Image:
        batch, channels, *sizes = x.sizes()
        spatial = range(2, 2 + len(sizes))
        last = rw.op("Transpose", x, perm=[0, *spatial, 1])
        rows = reshaped(rw, last, integers(batch * math.prod(sizes), channels))
        return cls(rw, typed(rw, x), rows, tuple(sizes), x.element_type())

    def at(self, places: list[Value], batch: np.ndarray, inside: Value | None) -> Value:
        """The elements at given positions; 0 if they are not inside.

        Args:
            places: for each spatial axis float positions of shape [batch, points], all within the image.
            batch: the first row of each image, of shape [batch, 1].
            inside: which positions are inside; None if all are.
        """
        flat: Value | None = None
        for place, size in zip(places, self.sizes, strict=True):
            whole = self.rw.op("Cast", place, to=TensorProto.INT64)
            flat = whole if flat is None else self.rw.op("Add", self.rw.op("Mul", flat, np.asarray(size)), whole)
        assert flat is not None
        found = self.rw.op("Gather", self.rows, self.rw.op("Add", flat, batch), axis=0)
        if inside is None:
            return found
        return self.op("Where", self.rw.op("Unsqueeze", inside, axes=[2]), found, 0)


def _clipped(op: Op, x: Value, low: float, high: float) -> Value:
    """Clip to bounds; NaN becomes the lower bound."""
    above = op("Where", op("Greater", x, low), x, low)
    return op("Where", op("Less", above, high), above, high)


def _reflected(op: Op, x: Value, low: float, high: float) -> Value:
    """Reflect at both ends of a range, repeatedly, until within it."""
    span = high - low
    if span == 0:
        return op("Where", op("Equal", x, x), low, low)
    apart = op("Where", op("Less", x, low), op("Sub", low, x), op("Sub", x, high))
    times = op("Floor", op("Div", apart, span))
    rest = op("Sub", apart, op("Mul", times, span))
    odd = op("Greater", op("Sub", times, op("Mul", op("Floor", op("Mul", times, 0.5)), 2)), 0.5)
    from_low = op("Where", odd, op("Sub", high, rest), op("Add", low, rest))
    from_high = op("Where", odd, op("Add", low, rest), op("Sub", high, rest))
    back = op("Where", op("Less", x, low), from_low, from_high)
    return op("Where", op("Or", op("Less", x, low), op("Greater", x, high)), back, x)


@dataclass(frozen=True, slots=True)
class _Sampling:
    """The settings of a `GridSample`.

    Attributes:
        mode: `nearest`, `linear` or `cubic`.
        padding: `zeros`, `border` or `reflection`.
        aligned: whether -1 and 1 are the centers of the first and last elements.
    """

    mode: str
    padding: str
    aligned: bool

    def bounds(self, size: int) -> tuple[float, float]:
        """The coordinates of the ends of an axis."""
        return (0.0, size - 1.0) if self.aligned else (-0.5, size - 0.5)

    def coordinate(self, op: Op, x: Value, size: int, dtype: int) -> Value:
        """The coordinate along an axis for a number of the grid."""
        if self.aligned:
            place = op("Mul", op("Mul", op("Add", x, 1), 0.5), size - 1)
        else:
            place = op("Mul", op("Sub", op("Mul", op("Add", x, 1), size), 1), 0.5)
        # Runtimes replace infinities and NaN with the first end.
        finite = op("Less", op("Abs", op("Mul", place, 0)), 1)
        place = op("Where", finite, place, self.bounds(size)[0])
        if self.mode == "nearest":
            place = rounded(place, op, dtype)
        if self.mode == "cubic" and self.padding == "border":
            return place  # its neighbours are clipped separately
        return self.brought_back(op, place, size)

    def brought_back(self, op: Op, place: Value, size: int) -> Value:
        """A coordinate, mapped into the image by the padding mode."""
        if self.padding == "border":
            return _clipped(op, place, 0, size - 1)
        if self.padding == "reflection":
            return _reflected(op, place, *self.bounds(size))
        return place

    def taps(self, op: Op, place: Value, dtype: int) -> Taps:
        """The neighbours along an axis, with their weights."""
        if self.mode == "nearest":
            return [(rounded(place, op, dtype), None)]
        below = op("Floor", place)
        part = op("Sub", place, below)
        if self.mode == "linear":
            return [(below, op("Sub", 1, part)), (op("Add", below, 1), part)]
        rest = op("Sub", 1, part)
        return [
            (op("Sub", below, 1), _far(op, op("Add", part, 1))), (below, _near(op, part)),
            (op("Add", below, 1), _near(op, rest)), (op("Add", below, 2), _far(op, op("Add", rest, 1))),
        ]  # fmt: skip


def _near(op: Op, t: Value) -> Value:
    inner = op("Sub", op("Mul", t, _CUBIC + 2), _CUBIC + 3)
    return op("Add", op("Mul", op("Mul", inner, t), t), 1)


def _far(op: Op, t: Value) -> Value:
    inner = op("Sub", op("Mul", t, _CUBIC), 5 * _CUBIC)
    return op("Sub", op("Mul", op("Add", op("Mul", inner, t), 8 * _CUBIC), t), 4 * _CUBIC)


def sampled(image: _Image, places: list[Value], how: _Sampling, batch: np.ndarray) -> Value:
    """The interpolated values of an image, of shape [batch, points, channels]."""
    op, total = image.op, None
    along = [how.taps(op, place, image.dtype) for place in places]
    for taps in itertools.product(*along):
        found, inside, weight = [], None, None
        for (place, share), size in zip(taps, image.sizes, strict=True):
            if how.padding == "zeros":
                within = op("And", op("Greater", place, -0.5), op("Less", place, size - 0.5))
                inside = within if inside is None else op("And", inside, within)
            brought = place if how.padding == "zeros" else how.brought_back(op, place, size)
            found.append(_clipped(op, brought, 0, size - 1))
            if share is not None:
                weight = share if weight is None else op("Mul", weight, share)
        part = image.at(found, batch, inside)
        if weight is not None:
            part = op("Mul", part, image.rw.op("Unsqueeze", weight, axes=[2]))
        total = part if total is None else op("Add", total, part)
    assert total is not None
    return total


@down(20, "GridSample")
def grids_of_volumes(node: Node, change: Change, rw: Rewriter) -> Step:
    """Write out `GridSample` of 3-d images; before opset 20 it supports 2-d images only."""
    if len(node.operand(0).dims()) != 4:
        _by_grid(node, rw)
        return None
    return automatic.down(node, change, rw)


@down(16, "GridSample")
def grids_of_images(node: Node, change: Change, rw: Rewriter) -> None:
    """Write out `GridSample` of 2-d images."""
    _by_grid(node, rw)


def _by_grid(node: Node, rw: Rewriter) -> None:
    x, grid = node.operand(0), node.operand(1)
    if x.dtype not in FLOAT_TYPES or x.dtype != grid.dtype:
        raise Decline("{} does not have the same float type as {}", x.name, grid.name)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(found := node.attr("mode", "linear"), found)
    how = _Sampling(mode, node.attr("padding_mode", "zeros"), bool(node.attr("align_corners", 0)))
    image = _Image.of(x, rw)
    batch, *points, rank = grid.sizes()
    flat = reshaped(rw, grid, integers(batch, math.prod(points), rank))
    places = [
        how.coordinate(image.op, rw.op("Gather", flat, np.asarray(rank - 1 - axis), axis=2), size, image.dtype)
        for axis, size in enumerate(image.sizes)
    ]
    starts = (np.arange(batch, dtype=np.int64) * math.prod(image.sizes))[:, None]
    rows = rw.op("Transpose", sampled(image, places, how, starts), perm=[0, 2, 1])
    rw.replace(node, [reshaped(rw, rows, integers(batch, x.size(1), *points))])


@down(19, "DeformConv")
def sampled_and_multiplied(node: Node, change: Change, rw: Rewriter) -> None:
    """Sample every element of every window, and multiply the matrix of windows by the weights."""
    x, weight, bias = node.operand(0), node.operand(1), node.input(3)
    if len(x.dims()) != 4:
        raise Decline("there is no DeformConv before opset 19, and its operand is not an image")
    batch, counts = x.size(0), node.operand(2).sizes()[2:]
    outputs, depth, *kernel = weight.sizes()
    groups, shared, taps = node.attr("group", 1), node.attr("offset_group", 1), math.prod(kernel)
    parts = [_moved_elements(node, rw, number, shared, kernel) for number in range(shared)]
    rows = parts[0] if len(parts) == 1 else rw.op("Concat", *parts, axis=1)
    rows = reshaped(rw, rows, integers(batch, groups, depth * taps, math.prod(counts)))
    factor = reshaped(rw, weight, integers(1, groups, outputs // groups, depth * taps))
    result = reshaped(rw, rw.op("MatMul", factor, rows), integers(batch, outputs, *counts))
    if bias is not None:
        result = rw.op("Add", result, reshaped(rw, bias, integers(1, outputs, 1, 1)))
    rw.replace(node, [result])


def _moved_elements(node: Node, rw: Rewriter, number: int, shared: int, kernel: list[int]) -> Value:
    """The sampled elements of all windows for the channels of one offset group: [batch, channels, elements]."""
    x, offset, mask = node.operand(0), node.operand(2), node.input(4)
    batch, channels, height, width = x.sizes()
    counts, taps = offset.sizes()[2:], math.prod(kernel)
    points, depth = taps * math.prod(counts), channels // shared
    own = rw.op("Slice", x, starts=[number * depth], ends=[(number + 1) * depth], axes=[1])
    rows = reshaped(rw, rw.op("Transpose", own, perm=[0, 2, 3, 1]), integers(batch * height * width, depth))
    image = _Image(rw, typed(rw, x), rows, (height, width), x.element_type())
    moves = reshaped(rw, offset, integers(batch, shared, taps, 2, *counts))
    group = rw.op("Gather", moves, np.asarray(number), axis=1)
    places = []
    for axis in range(2):
        still = _window_places(node, kernel, counts[axis], axis).astype(number_like(x, 0).dtype)
        moved = rw.op("Add", rw.op("Gather", group, np.asarray(axis), axis=2), still)
        places.append(reshaped(rw, moved, integers(batch, points)))
    starts = (np.arange(batch, dtype=np.int64) * height * width)[:, None]
    found = sampled(image, places, _Sampling("linear", "zeros", aligned=True), starts)
    if mask is not None:
        masks = reshaped(rw, mask, integers(batch, shared, points))
        share = rw.op("Gather", masks, np.asarray(number), axis=1)
        found = rw.op("Mul", found, rw.op("Unsqueeze", share, axes=[2]))
    return rw.op("Transpose", found, perm=[0, 2, 1])


def _window_places(node: Node, kernel: list[int], count: int, axis: int) -> np.ndarray:
    """The positions along an axis of all windows' elements without offsets: [1, elements, rows, columns]."""
    stride, gap = ((node.attr(name) or (1, 1))[axis] for name in ("strides", "dilations"))
    before = (node.attr("pads") or (0,) * 4)[axis]
    at = np.unravel_index(np.arange(math.prod(kernel)), kernel)[axis] * gap
    windows = np.arange(count) * stride - before
    shape = (1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1)
    return np.asarray(at[None, :, None, None] + windows.reshape(shape))


@down(20, "AffineGrid")
def moved_grid(node: Node, change: Change, rw: Rewriter) -> None:
    """Multiply the coordinates of the elements along each axis by the matrix of each image."""
    theta, wanted = node.operand(0), node.operand(1)
    count, op, counting = theta.size(-1) - 1, typed(rw, theta), Counting(rw)
    aligned = node.attr("align_corners", 0)
    total: Value | None = None
    transposed = rw.op("Transpose", theta, perm=[0, 2, 1])
    for axis in range(count):
        size = rw.op("Gather", wanted, integers(2 + axis), axis=0)
        number, whole = counting.up_to(size), rw.op("Cast", size, to=theta.dtype)
        numbers = rw.op("Cast", number, to=theta.dtype)
        if aligned:
            # A single element is at -1, as in the standard's function.
            places = op("Sub", op("Div", op("Mul", numbers, 2), op("Max", op("Sub", whole, 1), 1)), 1)
        else:
            places = op("Sub", op("Div", op("Add", op("Mul", numbers, 2), 1), whole), 1)
        # Images of [batch, sizes..., axes]: the last axis of the image is the first of the matrix.
        shaped = rw.op("Reshape", places, integers(1, -1, *[1] * (count - axis)))
        row = rw.op("Gather", transposed, integers(count - 1 - axis), axis=1)
        part = rw.op("Mul", shaped, rw.op("Reshape", row, integers(-1, *[1] * count, count)))
        total = part if total is None else rw.op("Add", total, part)
    shift = rw.op("Gather", transposed, integers(count), axis=1)
    assert total is not None
    rw.replace(node, [rw.op("Add", total, rw.op("Reshape", shift, integers(-1, *[1] * count, count)))])
