"""Fourier transforms as matrix products, and images summed from columns."""

from __future__ import annotations

import itertools
import math

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers
from graphopt.opsets.meanings.positions import Counting, Number
from graphopt.opsets.meanings.registry import down, down_at_last, number_like
from graphopt.rewrite import Rewriter

_MOST_PARTS = 256
"""Most windows that cover one element of an image."""


@down(17, "DFT")
def product_with_waves(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute real and imaginary parts as products with matrices of cosines and sines, for a known length."""
    x, length, rank = node.operand(0), node.input(1), len(node.operand(0).dims())
    axis = node.attr("axis", 1)
    axis = axis + rank if axis < 0 else axis
    size, inverse, onesided = x.size(axis), bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    half = inverse and onesided
    wanted = (2 * (size - 1) if half else size) if length is None else length.integer()
    if wanted < 0:
        raise Decline("the transform has length {}, expected 0 or more", wanted)
    if half:
        rw.replace(node, [_of_half(rw, x, axis, min(size, wanted // 2 + 1), wanted)])
        return
    rw.replace(node, [_transformed(rw, x, axis, size, wanted, inverse=inverse, onesided=onesided)])


def _transformed(
    rw: Rewriter, x: Value, axis: int, size: int, wanted: int, *, inverse: bool, onesided: bool
) -> Value:  # fmt: skip
    """The transform of `wanted` elements; a shorter signal is padded with zeros, a longer one cut."""
    if x.dtype not in FLOAT_TYPES:
        raise Decline("{} does not hold floats", x.name)
    rank, parts = len(x.dims()), x.size(-1)
    used, among = min(size, wanted), max(wanted, 1)
    count = wanted // 2 + 1 if onesided else wanted
    angles = np.outer(np.arange(used), np.arange(count)) % among * (2 * math.pi / among)
    scale = 1 / among if inverse else 1.0
    kind = number_like(x, 0).dtype
    cosines = (np.cos(angles) * scale).astype(kind)
    sines = (np.sin(angles) * (scale if inverse else -scale)).astype(kind)
    perm = [a for a in range(rank) if a not in (axis, rank - 1)] + [rank - 1, axis]
    last = rw.op("Transpose", x, perm=perm)
    if used < size:
        last = rw.op("Slice", last, starts=[0], ends=[used], axes=[rank - 1])
    if parts == 1:
        found = [rw.op("MatMul", last, waves) for waves in (cosines, sines)]
    else:
        real, imaginary = (rw.op("Slice", last, starts=[a], ends=[a + 1], axes=[rank - 2]) for a in (0, 1))
        found = [
            rw.op("Sub", rw.op("MatMul", real, cosines), rw.op("MatMul", imaginary, sines)),
            rw.op("Add", rw.op("MatMul", real, sines), rw.op("MatMul", imaginary, cosines)),
        ]
    both = rw.op("Concat", *found, axis=rank - 2)
    return rw.op("Transpose", both, perm=[perm.index(a) for a in range(rank)])


def _of_half(rw: Rewriter, x: Value, axis: int, used: int, wanted: int) -> Value:
    """The inverse transform to a real signal from the first half of a transform, which determines the other half."""
    if x.dtype not in FLOAT_TYPES or x.size(-1) != 2:
        raise Decline("{} does not hold complex floats", x.name)
    rank, among = len(x.dims()), max(wanted, 1)
    times = np.asarray([1 if k == 0 or 2 * k == wanted else 2 for k in range(used)])[:, None] / among
    angles = np.outer(np.arange(used), np.arange(wanted)) % among * (2 * math.pi / among)
    kind = number_like(x, 0).dtype
    perm = [a for a in range(rank) if a not in (axis, rank - 1)] + [rank - 1, axis]
    last = rw.op("Transpose", x, perm=perm)
    real, imaginary = (
        rw.op("Slice", last, starts=[a, 0], ends=[a + 1, used], axes=[rank - 2, rank - 1]) for a in (0, 1)
    )
    cosines, sines = (np.cos(angles) * times).astype(kind), (np.sin(angles) * times).astype(kind)
    found = rw.op("Sub", rw.op("MatMul", real, cosines), rw.op("MatMul", imaginary, sines))
    return rw.op("Transpose", found, perm=[perm.index(a) for a in range(rank)])


@down(17, "STFT")
def transforms_of_frames(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather each frame, multiply it by the window, and transform it."""
    x, step, window, length = node.operand(0), node.operand(1), node.input(2), node.input(3)
    dims = x.dims()
    # In a valid model a window is as long as a frame, so a computed length must equal that of the window.
    size = length.integer() if length is not None and length.is_const else 0 if window is None else window.size(0)
    if not size or (window is not None and window.size(0) != size):
        raise Decline("there is no STFT before opset 17, and the length of a frame is not known")
    places = _frame_places(rw, x, step, size)
    parts = 1 if len(dims) < 3 else x.size(2)
    signal = x if len(dims) == 3 else rw.op("Unsqueeze", x, axes=[2])
    cut = rw.op("Gather", signal, places, axis=1)
    if window is not None:
        cut = rw.op("Mul", cut, rw.op("Unsqueeze", window, axes=[1]))
    rw.replace(node, [_waves_of_frames(rw, x, cut, parts, size, onesided=bool(node.attr("onesided", 1)))])


def _frame_places(rw: Rewriter, x: Value, step: Value, size: int) -> Number:
    """The positions of the elements of each frame."""
    op, total = Counting(rw), x.dims()[1]
    if step.is_const:
        apart = step.integer()
        if apart < 1:
            raise Decline("the frame step is {}, expected 1 or more", apart)
        if isinstance(total, int):
            starts = np.arange((total - size) // apart + 1, dtype=np.int64) * apart
            return starts[:, None] + np.arange(size)
        by: Number = integers(apart)
    else:
        by = rw.op("Reshape", rw.op("Cast", step, to=TensorProto.INT64), integers(1))
    frames = op("Add", op("Div", op("Sub", op.size(x, 1), size), by), 1)
    return op("Add", rw.op("Unsqueeze", op("Mul", op.up_to(frames), by), axes=[1]), np.arange(size))


def _waves_of_frames(rw: Rewriter, x: Value, cut: Value, parts: int, size: int, *, onesided: bool) -> Value:
    """The transform of [batch, frames, elements, parts] along the elements."""
    kind = number_like(x, 0).dtype
    count = size // 2 + 1 if onesided else size
    angles = np.outer(np.arange(size), np.arange(count)) % size * (2 * math.pi / size)
    cosines, sines = np.cos(angles).astype(kind), (-np.sin(angles)).astype(kind)
    last = rw.op("Transpose", cut, perm=[0, 1, 3, 2])
    if parts == 1:
        found = [rw.op("MatMul", last, waves) for waves in (cosines, sines)]
    else:
        real, imaginary = (rw.op("Slice", last, starts=[a], ends=[a + 1], axes=[2]) for a in (0, 1))
        found = [
            rw.op("Sub", rw.op("MatMul", real, cosines), rw.op("MatMul", imaginary, sines)),
            rw.op("Add", rw.op("MatMul", real, sines), rw.op("MatMul", imaginary, cosines)),
        ]
    return rw.op("Transpose", rw.op("Concat", *found, axis=2), perm=[0, 1, 3, 2])


@down(18, "Col2Im")
def summed_from_columns(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather and sum, for each element of the image, the elements of all windows that cover it."""
    x, image, block = node.operand(0), node.operand(1).ints(), node.operand(2).ints()
    rank = len(image)
    gaps, strides = node.attr("dilations") or (1,) * rank, node.attr("strides") or (1,) * rank
    pads = node.attr("pads") or (0,) * (2 * rank)
    counts = [
        (image[a] + pads[a] + pads[a + rank] - gaps[a] * (block[a] - 1) - 1) // strides[a] + 1 for a in range(rank)
    ]
    windows, cells = math.prod(counts), math.prod(block)
    lying: list[list[int]] = [[] for _ in range(math.prod(image))]
    for cell, at in enumerate(itertools.product(*map(range, block))):
        for window, origin in enumerate(itertools.product(*map(range, counts))):
            place = [origin[a] * strides[a] + at[a] * gaps[a] - pads[a] for a in range(rank)]
            if all(0 <= p < size for p, size in zip(place, image, strict=True)):
                lying[int(np.ravel_multi_index(place, image))].append(cell * windows + window)
    most = max(map(len, lying), default=0)
    if not 0 < most <= _MOST_PARTS:
        raise Decline("there is no Col2Im before opset 18, and {} windows overlap at an element", most)
    none = cells * windows
    places = np.asarray([each + [none] * (most - len(each)) for each in lying], np.int64)
    channels = x.size(1) // cells
    rows = rw.op("Reshape", x, integers(-1, channels, none))
    zeros = number_like(x, 0)
    rows = rw.op("Pad", rows, pads=[0, 0, 0, 0, 0, 1], constant_value=zeros)
    total: Value | None = None
    for part in range(most):
        found = rw.op("Gather", rows, places[:, part], axis=2)
        total = found if total is None else rw.op("Add", total, found)
    assert total is not None
    rw.replace(node, [rw.op("Reshape", total, integers(-1, channels, *image))])


@down_at_last(18, "Col2Im")
def summed_at_computed_places(node: Node, change: Change, rw: Rewriter) -> None:
    """Add every element to the padded image by `ScatterElements`, at positions computed from the sizes."""
    x, image, block, op = node.operand(0), node.operand(1), node.operand(2), Counting(rw)
    rank = image.size(0)
    gaps, strides = node.attr("dilations") or (1,) * rank, node.attr("strides") or (1,) * rank
    pads = node.attr("pads") or (0,) * (2 * rank)
    sizes = [op("Add", rw.op("Gather", image, integers(a), axis=0), pads[a] + pads[a + rank]) for a in range(rank)]
    places: Value | None = None
    apart: Number = integers(1)
    for axis in reversed(range(rank)):
        cells = rw.op("Gather", block, integers(axis), axis=0)
        reach = op("Mul", op("Sub", cells, 1), gaps[axis])
        count = op("Add", op("Div", op("Sub", op("Sub", sizes[axis], reach), 1), integers(strides[axis])), 1)
        starts = op("Mul", op.up_to(count), integers(strides[axis]))
        along = op("Add", rw.op("Unsqueeze", op("Mul", op.up_to(cells), gaps[axis]), axes=[1]), starts)
        others = [each for each in range(2 * rank) if each not in (axis, axis + rank)]
        shaped = rw.op("Unsqueeze", op("Mul", along, apart), axes=others) if others else op("Mul", along, apart)
        places = shaped if places is None else op("Add", places, shaped)
        apart = op("Mul", apart, sizes[axis])
    assert places is not None
    places = rw.op("Reshape", places, integers(-1))
    number = rw.op("Shape", places)
    rows = rw.op("Reshape", x, rw.op("Concat", integers(0, -1), number, axis=0))
    shape = rw.op("Shape", rows)
    ends = rw.op("Concat", rw.op("Slice", shape, starts=[0], ends=[2], axes=[0]), apart, axis=0)
    empty = rw.op("Expand", number_like(x, 0), ends)
    added = rw.op("ScatterElements", empty, rw.op("Expand", places, shape), rows, axis=2, reduction="add")
    whole = rw.op("Reshape", added, rw.op("Concat", integers(0, 0), *sizes, axis=0))
    before = integers(*pads[:rank])
    axes = np.arange(2, 2 + rank, dtype=np.int64)
    rw.replace(node, [rw.op("Slice", whole, before, op("Add", image, before), axes)])
