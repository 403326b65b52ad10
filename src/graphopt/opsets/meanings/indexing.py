"""Gather and scatter of elements, by their positions in the flattened tensor."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.bodies import write_body
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers
from graphopt.opsets.meanings.positions import Counting, Number
from graphopt.opsets.meanings.registry import Step, down, number_like
from graphopt.opsets.meanings.reshaping import reshaped
from graphopt.rewrite import Rewriter

_COMPUTED = (TensorProto.INT32, TensorProto.INT64)
_UNROLLED = 256
"""The longest axis along which a product is unrolled."""


def _strides(sizes: tuple[int, ...]) -> np.ndarray:
    """The row-major strides of a shape, in elements."""
    return np.asarray([math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))], np.int64)


def flat(rw: Rewriter, x: Value) -> Value:
    """A value flattened to one axis."""
    return rw.op("Reshape", x, np.asarray([-1], np.int64))


def _counted(rw: Rewriter, indices: Value, size: int | Number) -> Value:
    """Indices as int64, with negative ones counted from the front."""
    wide = indices if indices.dtype == TensorProto.INT64 else rw.op("Cast", indices, to=TensorProto.INT64)
    known = wide.const()
    if known is not None and (known >= 0).all():
        return wide
    negative = rw.op("Cast", rw.op("Less", wide, np.asarray(0, np.int64)), to=TensorProto.INT64)
    return rw.op("Add", wide, Counting(rw)("Mul", negative, size))


@down(11, "GatherElements")
def elements_of_a_flat_tensor(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather each element by its position in the flattened tensor."""
    x, indices = node.operand(0), node.operand(1)
    places = flat_positions(rw, x, indices, x.axis(node.attr("axis", 0)))
    rw.replace(node, [rw.op("Gather", flat(rw, x), places)])


def _is_fixed(x: Value) -> bool:
    return x.shape is not None and all(isinstance(size, int) for size in x.shape)


def flat_positions(rw: Rewriter, x: Value, indices: Value, axis: int) -> Value:
    """The positions, in the flattened tensor, of the elements that indices along an axis select."""
    if not (_is_fixed(x) and _is_fixed(indices)):
        return _computed_positions(rw, x, indices, axis)
    sizes, shape = x.sizes(), indices.sizes()
    strides, grid = _strides(sizes), np.indices(shape, dtype=np.int64)
    others = np.asarray(sum(grid[a] * strides[a] for a in range(len(sizes)) if a != axis), np.int64)
    along = rw.op("Mul", _counted(rw, indices, sizes[axis]), np.asarray(strides[axis]))
    return rw.op("Add", along, np.broadcast_to(others, shape).copy())


def _computed_positions(rw: Rewriter, x: Value, indices: Value, axis: int) -> Value:
    """The same as `flat_positions`, for computed sizes."""
    op, rank = Counting(rw), len(x.dims())
    stride: Number = integers(1)
    total: Value | None = None
    for each in reversed(range(rank)):
        if each == axis:
            steps = op("Mul", _counted(rw, indices, op.size(x, axis)), stride)
        else:
            numbers = op("Mul", op.up_to(op.size(indices, each)), stride)
            steps = rw.op("Reshape", numbers, integers(-1, *[1] * (rank - 1 - each)))
        total = steps if total is None else op("Add", total, steps)
        stride = op("Mul", stride, op.size(x, each))
    assert total is not None
    return total


@down(12, "GatherND")
def batches_by_position(node: Node, change: Change, rw: Rewriter) -> Step:
    """Replace batch axes with indices that enumerate the batches."""
    batches = node.attr("batch_dims", 0)
    if not batches:
        return automatic.down(node, change, rw)
    x, indices = node.operand(0), node.operand(1)
    sizes, shape = x.sizes(), indices.sizes()
    grid = np.indices((*shape[:-1], 1), dtype=np.int64)[:batches]
    counts = [np.broadcast_to(each, (*shape[:-1], 1)).copy() for each in grid]
    wide = _counted(rw, indices, np.asarray(sizes[batches : batches + shape[-1]]))
    rw.replace(node, [rw.op("GatherND", x, rw.op("Concat", *counts, wide, axis=-1))])
    return None


@down(11, "GatherND")
def slices_of_a_flat_tensor(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather slices by their positions along the flattened first axes."""
    x, indices = node.operand(0), node.operand(1)
    count = indices.size(-1)
    slices, position = _slices(rw, x, indices, count)
    rw.replace(node, [rw.op("Gather", slices, position)])


def _slices(rw: Rewriter, x: Value, indices: Value, count: int) -> tuple[Value, Value]:
    """A value with its first `count` axes flattened, and the positions along them that indices select."""
    sizes = x.sizes()
    if not 0 < count <= len(sizes):
        raise Decline("{} indices for {} axes", count, len(sizes))
    slices = reshaped(rw, x, np.asarray([math.prod(sizes[:count]), *sizes[count:]], np.int64))
    wide = _counted(rw, indices, np.asarray(sizes[:count], np.int64))
    steps = rw.op("Mul", wide, _strides(sizes[:count]))
    return slices, rw.op("ReduceSum", steps, axes=[len(indices.dims()) - 1], keepdims=0)


@down(11, "ScatterND")
def slices_scattered(node: Node, change: Change, rw: Rewriter) -> None:
    """Scatter flattened slices by their positions along the flattened first axes."""
    x, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    count, sizes = indices.size(-1), x.sizes()
    rows, width = math.prod(sizes[:count]), math.prod(sizes[count:])
    number = math.prod(indices.sizes()[:-1])
    _, position = _slices(rw, x, indices, count)
    table = reshaped(rw, x, np.asarray([rows, width], np.int64))
    column = reshaped(rw, position, np.asarray([number, 1], np.int64))
    wide = rw.op("Expand", column, np.asarray([number, width], np.int64))
    written = reshaped(rw, updates, np.asarray([number, width], np.int64))
    result = rw.op("ScatterElements", table, wide, written, axis=0)
    rw.replace(node, [reshaped(rw, result, np.asarray(sizes, np.int64))])


@down(24, "TensorScatter")
def written_at_flat_positions(node: Node, change: Change, rw: Rewriter) -> None:
    """Scatter updates to consecutive rows of the cache from an index per batch, modulo its size if circular."""
    x, updates = node.operand(0), node.operand(1)
    sizes, shape = x.sizes(), updates.sizes()
    axis = x.axis(node.attr("axis", -2))
    grid = np.indices(shape, dtype=np.int64)
    start = node.input(2)
    rows: Value | np.ndarray = grid[axis]
    if start is not None:
        behind = np.asarray([-1] + [1] * (len(shape) - 1), np.int64)
        rows = rw.op("Add", rw.op("Reshape", start, behind), grid[axis])
        if node.attr("mode", "linear") == "circular":
            rows = rw.op("Mod", rows, np.asarray(sizes[axis], np.int64))
    rw.replace(node, [rw.op("ScatterElements", x, rows, updates, axis=axis)])


@down(9, "Where")
def gathered_of_two(node: Node, change: Change, rw: Rewriter) -> None:
    """Multiply integers by 0 and 1; gather all other types from the concatenation of both operands.

    So infinities and NaN of the operand that is not chosen have no effect.
    """
    chosen, x, y = (node.operand(index) for index in range(3))
    if x.dtype == TensorProto.BOOL:
        left, right = rw.op("And", chosen, x), rw.op("And", rw.op("Not", chosen), y)
        rw.replace(node, [rw.op("Or", left, right)])
        return
    if x.dtype in _COMPUTED:
        factor = rw.op("Cast", chosen, to=x.dtype)
        other = rw.op("Sub", number_like(x, 1), factor)
        rw.replace(node, [rw.op("Add", rw.op("Mul", factor, x), rw.op("Mul", other, y))])
        return
    sizes = node.result.sizes()
    count, shape = math.prod(sizes), np.asarray(sizes, np.int64)
    both = rw.op("Concat", *(flat(rw, rw.op("Expand", each, shape)) for each in (x, y)), axis=0)
    second = rw.op("Cast", rw.op("Not", chosen), to=TensorProto.INT64)
    places = np.arange(count, dtype=np.int64).reshape(sizes)
    rw.replace(node, [rw.op("Gather", both, rw.op("Add", rw.op("Mul", second, np.asarray(count)), places))])


@down(14, "Trilu")
def triangle(node: Node, change: Change, rw: Rewriter) -> None:
    """Set elements outside the triangle to 0, by comparing column - row with the shift.

    ONNX Runtime has no `Where` of booleans.
    """
    x, shift = node.operand(0), node.input(1)
    upper = node.attr("upper", 1)
    dims = x.dims()
    if x.dtype is None or len(dims) < 2:
        raise Decline("the element type of {} is not known", x.name)
    zero = number_like(x, 0)
    rows, columns = dims[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        apart: Value | np.ndarray = np.arange(columns) - np.arange(rows)[:, None]
    else:
        shape = rw.op("Shape", x)
        sizes = [rw.op("Gather", shape, np.asarray(axis, np.int64)) for axis in (-2, -1)]
        down_, right = (rw.op("Range", np.asarray(0, np.int64), size, np.asarray(1, np.int64)) for size in sizes)
        apart = rw.op("Sub", right, rw.op("Unsqueeze", down_, axes=[1]))
    by = 0 if shift is None else shift.integer() if shift.is_const else None
    if isinstance(apart, np.ndarray) and by is not None:
        keep: Value | np.ndarray = apart >= by if upper else apart <= by
    else:
        given = shift if by is None else np.asarray(by, np.int64)
        keep = rw.op("GreaterOrEqual" if upper else "LessOrEqual", apart, given)
    truth = x.dtype == TensorProto.BOOL
    rw.replace(node, [rw.op("And", keep, x) if truth else rw.op("Where", keep, x, zero)])


@down(11, "CumSum")
def summed_in_doubled_reach(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute a prefix sum by adding the result shifted by 1, 2, 4 and so on, along an axis of known size."""
    x = node.operand(0)
    axis = x.axis(node.operand(1).integer())
    rw.replace(node, [_doubled(rw, x, axis, x.size(axis), node)])


def _doubled(rw: Rewriter, x: Value, axis: int, size: int, node: Node) -> Value:
    """Sums of 1, 2, 4 and more elements, until they cover the axis."""
    backward, rank = node.attr("reverse", 0), len(x.dims())

    def moved(value: Value, by: int) -> Value:
        starts, ends = ([by], [size]) if backward else ([0], [size - by])
        kept = rw.op("Slice", value, starts=starts, ends=ends, axes=[axis])
        if x.dtype not in FLOAT_TYPES:  # `Pad` supports integers from opset 11 on; for integers x * 0 = 0
            part = rw.op("Slice", value, starts=[0], ends=[by], axes=[axis])
            zeros = rw.op("Mul", part, number_like(x, 0))
            return rw.op("Concat", *((kept, zeros) if backward else (zeros, kept)), axis=axis)
        pads = [0] * (2 * rank)
        pads[axis + (rank if backward else 0)] = by
        return rw.op("Pad", kept, pads=pads)

    result = moved(x, 1) if node.attr("exclusive", 0) and size else x
    reach = 1
    while reach < size:
        result = rw.op("Add", result, moved(result, reach))
        reach *= 2
    return rw.op("Identity", x) if result is x else result


@down(26, "CumProd")
def multiplied_step_by_step(node: Node, change: Change, rw: Rewriter) -> None:
    """Unroll the products along a short axis."""
    x = node.operand(0)
    axis = x.axis(node.operand(1).integer())
    size = x.size(axis)
    if not 0 < size <= _UNROLLED:
        raise Decline("there is no CumProd before opset 26, and the axis has {} elements", size)
    order = range(size) if not node.attr("reverse", 0) else range(size - 1, -1, -1)
    parts = [rw.op("Slice", x, starts=[at], ends=[at + 1], axes=[axis]) for at in order]
    if node.attr("exclusive", 0):
        first = rw.op("Add", rw.op("Mul", parts[0], number_like(x, 0)), number_like(x, 1))
        if x.dtype in FLOAT_TYPES:
            shape = [each if isinstance(each, int) else None for each in x.dims()]
            if None in shape:
                raise Decline("the shape of {} is not known", x.name)
            shape[axis] = 1
            ones = np.ones([each for each in shape if each is not None], number_like(x, 0).dtype)
            first = rw.op("Identity", ones)
        parts = [first, *parts[:-1]]
    found = [parts[0]]
    for part in parts[1:]:
        found.append(rw.op("Mul", found[-1], part))
    rw.replace(node, [rw.op("Concat", *(found if order.step > 0 else found[::-1]), axis=axis)])


@down(9, "EyeLike")
def unit_matrix(node: Node, change: Change, rw: Rewriter) -> None:
    """Replace `EyeLike` with a constant, if the shape is known."""
    x = node.operand(0)
    rows, columns = x.sizes()
    kind = number_like(node.result, 0).dtype
    rw.replace(node, [rw.op("Identity", np.eye(rows, columns, node.attr("k", 0), kind))])


_ONE_BY_ONE = """
<opset_import: ["" : 16], domain: "written.out">
ScatterND (data, indices, updates) => (result) {{
  minus_one = Constant <value = int64[1] {{-1}}> ()
  zero = Constant <value = int64[1] {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  far = Constant <value = int64[1] {{9223372036854775807}}> ()
  of_indices = Shape (indices)
  width = Slice (of_indices, minus_one, far, zero)
  of_rows = Concat <axis = 0> (minus_one, width)
  rows = Reshape (indices, of_rows)
  of_flat = Shape (rows)
  number = Gather <axis = 0> (of_flat, zero)
  of_data = Shape (data)
  of_slice = Slice (of_data, width, far, zero)
  of_updates = Concat <axis = 0> (number, of_slice)
  slices = Reshape (updates, of_updates)
  result = Loop (number, , data) <body = one_by_one (int64 at, bool on, before) => (bool again, after) {{
    again = Identity (on)
    place = Reshape (at, minus_one)
    row = Gather <axis = 0> (rows, place)
    slice = Gather <axis = 0> (slices, place)
    old = GatherND (before, row)
    new = {op} (old, slice)
    after = ScatterND (before, row, new)
  }}>
}}
"""


@down(16, "ScatterND")
@down(18, "ScatterND")
def scattered_one_by_one(node: Node, change: Change, rw: Rewriter) -> Step:
    """Apply the updates of a reduction in a loop, since positions may occur more than once."""
    reduction = node.attr("reduction", "none")
    if reduction == "none" or (change.version == 18 and reduction in ("add", "mul")):
        return automatic.down(node, change, rw)
    op_type = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[reduction]
    write_body(node, onnx.parser.parse_function(_ONE_BY_ONE.format(op=op_type)), rw)
    return None


@down(16, "ScatterElements")
@down(18, "ScatterElements")
def elements_as_slices(node: Node, change: Change, rw: Rewriter) -> Step:
    """Replace a reduction with `ScatterND` on the flattened tensor."""
    reduction = node.attr("reduction", "none")
    if reduction == "none" or (change.version == 18 and reduction in ("add", "mul")):
        return automatic.down(node, change, rw)
    x, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    places = rw.op("Unsqueeze", flat(rw, flat_positions(rw, x, indices, x.axis(node.attr("axis", 0)))), axes=[1])
    result = rw.op("ScatterND", flat(rw, x), places, flat(rw, updates), reduction=reduction)
    rw.replace(node, [reshaped(rw, result, rw.op("Shape", x), x.shape, copied=())])
    return None
