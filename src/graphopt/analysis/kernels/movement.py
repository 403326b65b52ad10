"""Kernels that move data without reading it: exact for every element type."""

from __future__ import annotations

import math

import numpy as np

from graphopt.analysis.kernels.base import (
    Array,
    Kernel,
    Unsupported,
    box,
    given,
    ints,
    need,
    normal_axes,
    normal_axis,
    plain_ints,
)
from graphopt.ir import Node, Tensor, Value

Args = list[Array | None]


def _identity(node: Node, args: Args) -> Array:
    return need(args, 0)


def reshape_dims(target: list[int], source: tuple[int, ...], allow_zero: bool) -> list[int]:
    """The dimensions of the result of `Reshape`.

    Raises:
        Unsupported: the target is invalid.
    """
    if not allow_zero:
        if any(d == 0 and i >= len(source) for i, d in enumerate(target)):
            raise Unsupported("a 0 in the shape has no dimension to copy")
        target = [source[i] if d == 0 else d for i, d in enumerate(target)]
    if target.count(-1) > 1 or min(target, default=0) < -1:
        raise Unsupported(f"shape {target}")
    if -1 in target:
        rest = math.prod(d for d in target if d != -1)
        if rest == 0 or math.prod(source) % rest:
            raise Unsupported(f"{list(source)} cannot become {target}")
        target = [math.prod(source) // rest if d == -1 else d for d in target]
    if math.prod(target) != math.prod(source):
        raise Unsupported(f"{list(source)} cannot become {target}")
    return target


def _reshape(node: Node, args: Args) -> Array:
    data = need(args, 0)
    target = ints(node, args, "shape")
    if target is None:
        raise Unsupported("no shape")
    return data.reshape(reshape_dims(target, data.shape, bool(node.attr("allowzero", 0))))


def _flatten(node: Node, args: Args) -> Array:
    data = need(args, 0)
    axis = node.attr("axis", 1)
    if not -data.ndim <= axis <= data.ndim:
        raise Unsupported(f"axis {axis}")
    axis = axis + data.ndim if axis < 0 else axis
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


def _squeeze(node: Node, args: Args) -> Array:
    data = need(args, 0)
    axes = ints(node, args, "axes")
    if axes is None:
        return data.reshape([d for d in data.shape if d != 1])
    if not axes:
        raise Unsupported("an empty list of axes: none to the standard, all to ONNX Runtime")
    normal = normal_axes(axes, data.ndim)
    if any(data.shape[a] != 1 for a in normal):
        raise Unsupported("a squeezed dimension is not 1")
    return data.reshape([d for a, d in enumerate(data.shape) if a not in normal])


def _unsqueeze(node: Node, args: Args) -> Array:
    data = need(args, 0)
    axes = ints(node, args, "axes")
    if axes is None:
        raise Unsupported("no axes")
    rank = data.ndim + len(axes)
    normal = normal_axes(axes, rank)
    rest = iter(data.shape)
    return data.reshape([1 if a in normal else next(rest) for a in range(rank)])


def _transpose(node: Node, args: Args) -> Array:
    data = need(args, 0)
    perm = node.attr("perm")
    if perm is None:
        return data.T
    if sorted(perm) != list(range(data.ndim)):
        raise Unsupported(f"perm {list(perm)}")
    return data.transpose(perm)


_NO_END = ((1 << 31) - 1, (1 << 63) - 1)


def slice_bounds(start: int, end: int, step: int, dim: int) -> slice:
    """One axis of ONNX's `Slice` as a Python slice.

    Raises:
        Unsupported: the step is 0, or the standard and ONNX Runtime differ: in the latter, the largest integer as the
            end of a backward slice means the start of the axis.
    """
    if step == 0 or (step < 0 and end in _NO_END):
        raise Unsupported(f"step {step} up to {end}")
    low, high = (0, dim) if step > 0 else (-1, dim - 1)
    start = min(max(start + dim if start < 0 else start, 0), high)
    end = min(max(end + dim if end < 0 else end, low), high)
    return slice(start, None if end < 0 else end, step) if dim else slice(0, 0)


def slice_operands(node: Node, args: Args) -> tuple[list[int], list[int], list[int] | None, list[int] | None]:
    """Starts, ends, axes and steps of a `Slice`, from attributes or inputs.

    Raises:
        Unsupported: they are missing, symbolic or of different lengths.
    """
    parts = [ints(node, args, name) for name in ("starts", "ends", "axes", "steps")]
    starts, ends, axes, steps = parts
    if starts is None or ends is None:
        raise Unsupported("no starts or ends")
    if any(p is not None and len(p) != len(starts) for p in parts):
        raise Unsupported("starts, ends, axes and steps differ in length")
    return starts, ends, axes, steps


def _slice(node: Node, args: Args) -> Array:
    data = need(args, 0)
    starts, ends, axes, steps = slice_operands(node, args)
    normal = normal_axes(list(range(len(starts))) if axes is None else axes, data.ndim)
    index = [slice(None)] * data.ndim
    for i, axis in enumerate(normal):
        step = steps[i] if steps is not None else 1
        index[axis] = slice_bounds(starts[i], ends[i], step, data.shape[axis])
    return data[tuple(index)]


def _indices(array: Array, dim: int) -> Array:
    index = np.asarray(plain_ints(array), np.int64).reshape(array.shape)
    if index.size and (index.min() < -dim or index.max() >= dim):
        raise Unsupported(f"an index is outside of a dimension of {dim}")
    return index


def _gather(node: Node, args: Args) -> Array:
    data = need(args, 0)
    axis = normal_axis(node.attr("axis", 0), data.ndim)
    index = _indices(need(args, 1), data.shape[axis])
    return box(np.take(data, index, axis=axis), data.dtype)


def _gather_elements(node: Node, args: Args) -> Array:
    data = need(args, 0)
    axis = normal_axis(node.attr("axis", 0), data.ndim)
    index = _indices(need(args, 1), data.shape[axis])
    if any(index.shape[a] > data.shape[a] for a in range(data.ndim) if a != axis):
        raise Unsupported("indices are larger than the data")
    data = data[tuple(slice(None) if a == axis else slice(index.shape[a]) for a in range(data.ndim))]
    return np.take_along_axis(data, index, axis)


def _gather_nd(node: Node, args: Args) -> Array:
    data, index = need(args, 0), need(args, 1)
    if node.attr("batch_dims", 0) or index.ndim == 0 or index.shape[-1] > data.ndim or index.shape[-1] == 0:
        raise Unsupported("batch_dims")
    columns = [_indices(index[..., k], data.shape[k]) for k in range(index.shape[-1])]
    return box(data[tuple(columns)], data.dtype)


def _concat(node: Node, args: Args) -> Array:
    parts = [need(args, i) for i in range(len(args))]
    axis = node.attr("axis", 1 if node.graph.opset() < 4 else None)
    if axis is None or not parts:
        raise Unsupported("no axis")
    axis = normal_axis(axis, parts[0].ndim)
    if any(p.dtype == object for p in parts):
        parts = [p.astype(object) for p in parts]
    return np.concatenate(parts, axis=axis)


def split_sizes(node: Node, args: Args, dim: int) -> list[int]:
    """The sizes of the outputs of a `Split`.

    Raises:
        Unsupported: they do not add up.
    """
    sizes = ints(node, args, "split")
    count = len(node.outputs)
    if sizes is None:
        pieces = node.attr("num_outputs", count)
        if pieces != count or (dim % count and node.graph.opset() < 18):
            raise Unsupported(f"{dim} split into {count}")
        size = -(-dim // count)
        sizes = [size] * (count - 1) + [dim - size * (count - 1)]
    if len(sizes) != count or sum(sizes) != dim or min(sizes) < 0:
        raise Unsupported(f"{dim} split into {sizes}")
    return sizes


def _split(node: Node, args: Args) -> list[Array]:
    data = need(args, 0)
    axis = normal_axis(node.attr("axis", 0), data.ndim)
    sizes = split_sizes(node, args, data.shape[axis])
    return np.split(data, np.cumsum(sizes)[:-1].tolist(), axis=axis)


def _expand(node: Node, args: Args) -> Array:
    data = need(args, 0)
    target = plain_ints(need(args, 1))
    if min(target, default=0) < 0:
        raise Unsupported("negative dimension")
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(target)))


def _tile(node: Node, args: Args) -> Array:
    data = need(args, 0)
    repeats = plain_ints(need(args, 1))
    if node.graph.opset() < 6 or len(repeats) != data.ndim or min(repeats, default=0) < 0:
        raise Unsupported(f"repeats {repeats}")
    return np.tile(data, repeats)


def pad_operands(node: Node, args: Args, rank: int) -> list[tuple[int, int]]:
    """The elements that a `Pad` adds at the start and end of each axis; negative numbers remove elements.

    Raises:
        Unsupported: the pads do not fit the rank.
    """
    pads = ints(node, args, "pads")
    stated = ints(node, args, "axes")
    axes = list(range(rank)) if stated is None else normal_axes(stated, rank)
    if pads is None or len(pads) != 2 * len(axes):
        raise Unsupported("pads do not fit the rank")
    amounts = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        amounts[axis] = (pads[i], pads[i + len(axes)])
    return amounts


def _pad(node: Node, args: Args) -> Array:
    data = need(args, 0)
    if node.attr("mode", "constant") != "constant":
        raise Unsupported("only constant padding")
    told = node.stated("constant_value")
    if told is None and data.dtype == object:
        raise Unsupported("padding of strings")
    fill = need(args, node.inputs.index(told)) if isinstance(told, Value) else np.asarray(told or 0, data.dtype)
    amounts = pad_operands(node, args, data.ndim)
    data = data[tuple(slice(max(-a, 0), max(d - max(-b, 0), 0)) for (a, b), d in zip(amounts, data.shape, strict=True))]
    shape = tuple(d + max(a, 0) + max(b, 0) for (a, b), d in zip(amounts, data.shape, strict=True))
    result = np.full(shape, fill.reshape(()), dtype=data.dtype)
    result[tuple(slice(max(a, 0), max(a, 0) + d) for (a, _), d in zip(amounts, data.shape, strict=True))] = data
    return result


def shape_slice(node: Node, rank: int) -> slice:
    """The part of the shape that a `Shape` node returns."""
    start, end = node.attr("start", 0), node.attr("end", rank)
    start = min(max(start + rank if start < 0 else start, 0), rank)
    end = min(max(end + rank if end < 0 else end, 0), rank)
    return slice(start, end)


def _shape(node: Node, args: Args) -> Array:
    data = need(args, 0)
    return np.asarray(data.shape[shape_slice(node, data.ndim)], np.int64)


def _size(node: Node, args: Args) -> Array:
    return np.asarray(need(args, 0).size, np.int64)


def _constant_of_shape(node: Node, args: Args) -> Array:
    value = node.attr("value")
    fill = value.array() if isinstance(value, Tensor) else np.zeros(1, np.float32)
    target = plain_ints(need(args, 0))
    if min(target, default=0) < 0 or fill.size != 1:
        raise Unsupported(f"shape {target}")
    return np.full(target, fill.reshape(()), dtype=fill.dtype)


def _where(node: Node, args: Args) -> Array:
    condition, a, b = need(args, 0), need(args, 1), need(args, 2)
    if condition.dtype != bool or a.dtype != b.dtype:
        raise Unsupported("element types")
    result = np.where(condition, a, b)
    if result.dtype.kind == "f" and np.any(np.signbit(result) & (result == 0)):
        raise Unsupported("ONNX Runtime adds the two sides up, so that negative zeros lose their sign")
    return result


def _trilu(node: Node, args: Args) -> Array:
    data, k = need(args, 0), given(args, 1)
    if data.ndim < 2 or data.dtype == object:
        raise Unsupported("not a matrix of numbers")
    shift = 0 if k is None else plain_ints(k)[0]
    rows, columns = np.ogrid[: data.shape[-2], : data.shape[-1]]
    keep = columns - rows >= shift if node.attr("upper", 1) else columns - rows <= shift
    return np.where(keep, data, np.zeros((), data.dtype))


def _compress(node: Node, args: Args) -> Array:
    data, condition = need(args, 0), need(args, 1)
    axis = node.attr("axis")
    if condition.dtype != bool or condition.ndim != 1:
        raise Unsupported("condition")
    if axis is None:
        return data.reshape(-1)[: condition.size][condition[: data.size]]
    axis = normal_axis(axis, data.ndim)
    return np.compress(condition[: data.shape[axis]], data, axis=axis)


def _space_to_depth(node: Node, args: Args) -> Array:
    data, block = need(args, 0), node.attr("blocksize")
    n, c, h, w = data.shape
    if block < 1 or h % block or w % block:
        raise Unsupported(f"blocksize {block}")
    order = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = data.reshape(n, c, h // block, block, w // block, block).transpose(order)
    return parts.reshape(n, c * block * block, h // block, w // block)


def _depth_to_space(node: Node, args: Args) -> Array:
    data, block = need(args, 0), node.attr("blocksize")
    n, c, h, w = data.shape
    if block < 1 or c % (block * block):
        raise Unsupported(f"blocksize {block}")
    if node.attr("mode", "DCR") == "DCR":
        parts = data.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = data.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // block**2, h * block, w * block)


def _nonzero(node: Node, args: Args) -> Array:
    data = need(args, 0)
    if data.dtype.kind not in "iubf" or data.ndim == 0:
        raise Unsupported("element type or rank")
    return np.stack(np.nonzero(data)).astype(np.int64)


MOVEMENT: dict[str, Kernel] = {
    "Compress": _compress,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Identity": _identity,
    "NonZero": _nonzero,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Kernels by operator."""
