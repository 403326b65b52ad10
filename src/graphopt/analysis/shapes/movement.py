"""Output shapes of operators that move data."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.kernels.base import normal_axes, normal_axis
from graphopt.analysis.kernels.movement import shape_slice, slice_bounds
from graphopt.analysis.shapes.dim import Size, at_least, divide, vanishes_with
from graphopt.analysis.shapes.engine import MAX_ELEMENTS, Rule, Shape, ShapeAnalysis
from graphopt.ir import Node, Value

FAR = 1 << 31
"""A slice with an end from here on ends with its axis: exporters write the largest integer."""


def listed(analysis: ShapeAnalysis, node: Node, name: str) -> list[Size] | None:
    """A list setting, like axes or pads, from an attribute or an input, depending on the opset.

    Returns:
        Its elements, None if it is omitted.

    Raises:
        Unsupported: it is given, but unknown.
    """
    given = node.stated(name)
    if not isinstance(given, Value):
        return None if given is None else list(given)
    sizes = analysis.sizes(given)
    if sizes is None:
        raise Unsupported(f"{name} is not known")
    return sizes


def fixed(sizes: Sequence[Size]) -> list[int]:
    """Return sizes as integers.

    Raises:
        Unsupported: one is an expression.
    """
    result = [s for s in sizes if isinstance(s, int)]
    if len(result) != len(sizes):
        raise Unsupported("an axis or index is not constant")
    return result


def known_length(analysis: ShapeAnalysis, value: Value | None) -> int:
    """The number of elements of a vector.

    Raises:
        Unsupported: it is not known.
    """
    shape = analysis.shape(value) if value is not None else None
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > MAX_ELEMENTS:
        raise Unsupported("the length of an operand is unknown")
    return shape[0]


def product(shape: Sequence[Size]) -> Size:
    """The number of elements of a shape."""
    total: Size = 1
    for dim in shape:
        total = total * dim
    return total


# Reshape and its family


def _reshape(analysis: ShapeAnalysis, node: Node) -> Shape:
    try:
        target = listed(analysis, node, "shape")
    except Unsupported:
        return tuple(analysis.fresh() for _ in range(known_length(analysis, node.input(1))))
    if target is None:
        raise Unsupported("no shape")
    source = analysis.shape(node.inputs[0]) if node.inputs[0] is not None else None
    return reshaped(analysis, source, target, bool(node.attr("allowzero", 0)))


def reshaped(analysis: ShapeAnalysis, source: Shape | None, target: list[Size], allow_zero: bool) -> Shape:
    """The shape of the result of `Reshape`.

    Args:
        analysis: the present analysis.
        source: shape of the data.
        target: contents of the shape operand.
        allow_zero: whether 0 means an empty axis instead of a copied dimension.
    """
    if target.count(-1) > 1:
        raise Unsupported("more than one -1")
    dims: list[Size | None] = []
    for axis, size in enumerate(target):
        if size == -1:
            dims.append(None)
        elif size == 0 and not allow_zero:
            dims.append(source[axis] if source is not None and axis < len(source) else None)
        else:
            dims.append(_target_dim(analysis, source, axis, size, allow_zero))
    if source is not None and dims.count(None) == 1:
        axis = dims.index(None)
        dims[axis] = _left_over(analysis, source, [d for d in dims if d is not None], target[axis] == -1)
    return tuple(analysis.fresh() if dim is None else dim for dim in dims)


def _target_dim(analysis: ShapeAnalysis, source: Shape | None, axis: int, size: Size, allow_zero: bool) -> Size | None:
    """The dimension that an element of the target means; None if it may be -1 or 0, which mean another one."""
    if at_least(size, 1):
        return size
    if not at_least(size, 0):
        return None
    if allow_zero:
        return size
    if source is None or axis >= len(source):
        # A 0 here would have no dimension to copy, and the run would fail.
        return size if source is not None else None
    if vanishes_with(source[axis], size):
        return size
    if analysis.zero_sizes or not vanishes_with(product(source), size):
        return None
    return size


def _left_over(analysis: ShapeAnalysis, source: Shape, rest: list[Size], inferred: bool) -> Size | None:
    """The inferred dimension, from the equal number of elements."""
    if not inferred and analysis.zero_sizes and not all(at_least(dim, 1) for dim in rest):
        return None
    left = list(source)
    for dim in list(rest):
        if dim in left and dim != 0:
            left.remove(dim)
            rest.remove(dim)
    return divide(product(left), product(rest))


def _flatten(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    axis = node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise Unsupported(f"axis {axis}")
    axis = axis + len(shape) if axis < 0 else axis
    return product(shape[:axis]), product(shape[axis:])


def _squeeze(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    axes = listed(analysis, node, "axes")
    if axes is not None:
        if not axes:
            raise Unsupported("an empty list of axes: none to the standard, all to ONNX Runtime")
        gone = normal_axes(fixed(axes), len(shape))
        return tuple(d for a, d in enumerate(shape) if a not in gone)
    if not all(isinstance(d, int) or at_least(d, 2) for d in shape):
        raise Unsupported("which dimensions are 1 is not known")
    return tuple(d for d in shape if d != 1)


def _unsqueeze(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    axes = listed(analysis, node, "axes")
    if axes is None:
        raise Unsupported("no axes")
    rank = len(shape) + len(axes)
    new = normal_axes(fixed(axes), rank)
    rest = iter(shape)
    return tuple(1 if a in new else next(rest) for a in range(rank))


def _transpose(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    perm = node.attr("perm")
    if perm is None:
        return shape[::-1]
    if sorted(perm) != list(range(len(shape))):
        raise Unsupported(f"perm {list(perm)}")
    return tuple(shape[axis] for axis in perm)


def _depth_to_space(analysis: ShapeAnalysis, node: Node) -> Shape:
    n, c, h, w = analysis.need(node, 0)
    block = node.attr("blocksize")
    channels = divide(c, block * block)
    return n, analysis.fresh() if channels is None else channels, h * block, w * block


def _space_to_depth(analysis: ShapeAnalysis, node: Node) -> Shape:
    n, c, h, w = analysis.need(node, 0)
    block = node.attr("blocksize")
    floor_div = analysis.symbols.floor_div
    return n, c * (block * block), floor_div(h, block), floor_div(w, block)


# Parts of a tensor


def _slice(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = list(analysis.need(node, 0))
    starts = listed(analysis, node, "starts")
    ends = listed(analysis, node, "ends")
    axes_in = listed(analysis, node, "axes")
    steps = listed(analysis, node, "steps")
    if starts is None or ends is None or len(starts) != len(ends):
        raise Unsupported("starts and ends")
    axes = normal_axes(list(range(len(starts))) if axes_in is None else fixed(axes_in), len(shape))
    for i, axis in enumerate(axes):
        step = steps[i] if steps is not None else 1
        shape[axis] = _slice_length(analysis, shape[axis], starts[i], ends[i], step)
    return tuple(shape)


def _slice_length(analysis: ShapeAnalysis, dim: Size, start: Size, end: Size, step: Size) -> Size:
    if not isinstance(step, int) or step == 0:
        return analysis.fresh()
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(dim)[slice_bounds(start, end, step, dim)])
    if step < 0:
        whole = step == -1 and _is_last(start) and isinstance(end, int) and end <= -FAR
        return dim if whole else analysis.fresh()
    symbols = analysis.symbols
    last = _position(analysis, dim, end)
    if last is None:
        return analysis.fresh()
    if last == dim and at_least(start, 0):
        length = dim if start == 0 else symbols.maximum(dim - start, 0)
    else:
        first = _position(analysis, dim, start)
        if first is None:
            return analysis.fresh()
        length = last if first == 0 else symbols.maximum(last - first, 0)
    return symbols.ceil_div(length, step)


def _is_last(start: Size) -> bool:
    return isinstance(start, int) and (start == -1 or start >= FAR - 1)


def _position(analysis: ShapeAnalysis, dim: Size, at: Size) -> Size | None:
    """A start or end counted from the front and clamped to the axis; None if its sign is unknown."""
    if isinstance(at, int):
        if at >= FAR - 1:
            return dim
        if at < 0:
            return 0 if at <= -FAR else analysis.symbols.maximum(dim + at, 0)
    elif not at_least(at, 0):
        return None
    return analysis.symbols.minimum(at, dim)


def _gather(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape, indices = analysis.need(node, 0), analysis.need(node, 1)
    axis = normal_axis(node.attr("axis", 0), len(shape))
    return shape[:axis] + indices + shape[axis + 1 :]


def _like_indices(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.need(node, 1)


def _gather_nd(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape, indices = analysis.need(node, 0), analysis.need(node, 1)
    depth = indices[-1]
    batch = node.attr("batch_dims", 0)
    if not isinstance(depth, int) or depth < 1 or batch + depth > len(shape):
        raise Unsupported("the depth of the indices")
    return indices[:-1] + shape[batch + depth :]


def _concat(analysis: ShapeAnalysis, node: Node) -> Shape:
    shapes = [analysis.need(node, i) for i in range(len(node.inputs))]
    first = shapes[0]
    axis = node.attr("axis", 1 if node.graph.opset() < 4 else None)
    if axis is None or any(len(s) != len(first) for s in shapes):
        raise Unsupported("axis or ranks")
    axis = normal_axis(axis, len(first))
    result: list[Size] = []
    for at, dims in enumerate(zip(*shapes, strict=True)):
        if at == axis:
            total: Size = 0
            for dim in dims:
                total = total + dim
            result.append(total)
        else:
            # All must be equal for the run to succeed: prefer a fixed one.
            result.append(next((d for d in dims if isinstance(d, int)), dims[0]))
    return tuple(result)


def _split(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    shape = analysis.need(node, 0)
    axis = normal_axis(node.attr("axis", 0), len(shape))
    sizes = listed(analysis, node, "split")
    count = len(node.outputs)
    if sizes is None:
        sizes = _even_sizes(analysis, shape[axis], count)
    if len(sizes) != count:
        raise Unsupported("split does not fit the outputs")
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def _even_sizes(analysis: ShapeAnalysis, dim: Size, count: int) -> list[Size]:
    exact = divide(dim, count)
    if exact is not None:
        return [exact] * count
    if isinstance(dim, int):
        size: Size = -(-dim // count)
        return [size] * (count - 1) + [dim - size * (count - 1)]
    return [analysis.fresh() for _ in range(count)]


# Larger tensors


def _expand(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    target = analysis.sizes(node.input(1))
    if target is not None:
        return analysis.broadcast([shape, tuple(s if at_least(s, 0) else analysis.fresh() for s in target)])
    length = known_length(analysis, node.input(1))
    return analysis.broadcast([shape, tuple(analysis.fresh() for _ in range(length))])


def _tile(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    repeats = analysis.sizes(node.input(1))
    if repeats is None or node.graph.opset() < 6:
        return tuple(analysis.fresh() for _ in shape)
    if len(repeats) != len(shape):
        raise Unsupported("repeats do not fit the rank")
    return tuple(dim * times for dim, times in zip(shape, repeats, strict=True))


def _pad(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    pads = listed(analysis, node, "pads")
    if pads is None:
        raise Unsupported("no pads")
    stated = listed(analysis, node, "axes")
    axes = normal_axes(list(range(len(shape))) if stated is None else fixed(stated), len(shape))
    if len(pads) != 2 * len(axes):
        raise Unsupported("pads do not fit the rank")
    result = list(shape)
    for i, axis in enumerate(axes):
        result[axis] = result[axis] + pads[i] + pads[i + len(axes)]
    return tuple(result)


def _constant_of_shape(analysis: ShapeAnalysis, node: Node) -> Shape:
    sizes = analysis.sizes(node.input(0))
    if sizes is None:
        return tuple(analysis.fresh() for _ in range(known_length(analysis, node.input(0))))
    return tuple(s if at_least(s, 0) else analysis.fresh() for s in sizes)


def _range(analysis: ShapeAnalysis, node: Node) -> Shape:
    operands = [analysis.sizes(node.input(i)) for i in range(3)]
    if any(o is None or len(o) != 1 for o in operands):
        return (analysis.fresh(),)
    start, limit, delta = (o[0] for o in operands if o is not None)
    if not isinstance(delta, int) or delta == 0 or not all(_is_integer(node.input(i)) for i in range(3)):
        return (analysis.fresh(),)
    symbols = analysis.symbols
    span = limit - start if delta > 0 else start - limit
    return (symbols.maximum(symbols.ceil_div(span, abs(delta)), 0),)


def _is_integer(value: Value | None) -> bool:
    # Floats computed from sizes are followed as integers too, but a range of floats rounds.
    return value is not None and value.dtype in (6, 7)


def _one_hot(analysis: ShapeAnalysis, node: Node) -> Shape:
    indices = analysis.need(node, 0)
    depth = analysis.sizes(node.input(1))
    axis = normal_axis(node.attr("axis", -1), len(indices) + 1)
    size = depth[0] if depth is not None and len(depth) == 1 and at_least(depth[0], 0) else analysis.fresh()
    return (*indices[:axis], size, *indices[axis:])


def _nonzero(analysis: ShapeAnalysis, node: Node) -> Shape:
    rank = len(analysis.need(node, 0))
    if rank == 0:
        raise Unsupported("of a scalar")
    return rank, analysis.fresh()


def _shape(analysis: ShapeAnalysis, node: Node) -> Shape:
    part = shape_slice(node, len(analysis.need(node, 0)))
    return (max(0, part.stop - part.start),)


def _size(analysis: ShapeAnalysis, node: Node) -> Shape:
    return ()


RULES: dict[str, Rule] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _like_indices,
    "GatherND": _gather_nd,
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
