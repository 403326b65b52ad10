"""Operators that list positions, or write to them: by comparing all pairs, or in a loop."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.opsets.bodies import called
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers, listed
from graphopt.opsets.meanings.indexing import flat, flat_positions
from graphopt.opsets.meanings.positions import Counting, Number
from graphopt.opsets.meanings.registry import down, number_like
from graphopt.opsets.meanings.reshaping import reshaped
from graphopt.rewrite import Rewriter

_LISTED = """
<opset_import: ["" : {opset}], domain: "written.out">
listed (truths, number, on, none) => (places) {{
  places = Loop (number, on, none) <body = one_by_one
      (int64 at, bool still, int64[some] before) => (bool again, int64[more] after) {{
    again = Identity (still)
    minus_one = Constant <value = int64[1] {{-1}}> ()
    place = Reshape (at, minus_one)
    chosen = Gather <axis = 0> (truths, place)
    times = Cast <to = 7> (chosen)
    part = Tile (place, times)
    after = Concat <axis = 0> (before, part)
  }}>
}}
"""


def _places(rw: Rewriter, truths: Value, most: Number | None = None) -> Value:
    """The positions at which a list is true, among its first `most` elements."""
    op = Counting(rw)
    number = op.size(truths, 0)
    if isinstance(number, np.ndarray) and isinstance(most, np.ndarray):
        number = np.minimum(number, most)
    elif most is not None:
        number = op.choose(op("Less", number, most), number, most)
    number = rw.op("Reshape", number, integers())
    body = onnx.parser.parse_function(_LISTED.format(opset=rw.graph.opset()))
    return called(rw, body, truths, number, rw.constant(np.asarray(True)), rw.constant(integers()))[0]


@down(9, "Compress")
def gathered_where_true(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather the selected positions; a condition that is longer than the axis is cut."""
    x, truths = node.operand(0), listed(rw, node.operand(1))
    axis = node.attr("axis")
    if axis is None:
        x, axis = flat(rw, x), 0
    places = _places(rw, truths, Counting(rw).size(x, axis))
    rw.replace(node, [rw.op("Gather", x, places, axis=axis)])


@down(9, "NonZero")
def places_along_each_axis(node: Node, change: Change, rw: Rewriter) -> None:
    """List positions in the flattened tensor, and compute those along each axis from them."""
    x, op = node.operand(0), Counting(rw)
    if not x.dims():
        raise Decline("there is no NonZero before opset 9, and its operand is a scalar")
    places = _places(rw, flat(rw, rw.op("Cast", x, to=TensorProto.BOOL)))
    rows: list[Value] = []
    for axis in reversed(range(len(x.dims()))):
        size = op.size(x, axis)
        behind = op("Div", places, _divisor(rw, size))
        rows.append(rw.op("Unsqueeze", op("Sub", places, op("Mul", behind, size)), axes=[0]))
        places = behind
    rw.replace(node, [rw.op("Concat", *rows[::-1], axis=0)])


def _divisor(rw: Rewriter, size: Number) -> Number:
    """A size as a divisor, 1 instead of 0: the runtime fails on a division by 0, even of an empty tensor."""
    if isinstance(size, np.ndarray):
        return size.clip(1)
    return rw.op("Add", size, rw.op("Cast", rw.op("Equal", size, integers(0)), to=TensorProto.INT64))


@down(9, "OneHot")
def one_of_all_classes(node: Node, change: Change, rw: Rewriter) -> None:
    """Compare each index with every class; negative indices count from the end."""
    indices, depth, values = (node.operand(i) for i in range(3))
    op, rank = Counting(rw), len(indices.dims()) + 1
    axis = node.attr("axis", -1)
    axis = axis + rank if axis < 0 else axis
    count = integers(int(depth.array().reshape(-1)[0])) if depth.is_const else None
    number = count if count is not None else rw.op("Reshape", rw.op("Cast", depth, to=TensorProto.INT64), integers(1))
    wide = rw.op("Cast", indices, to=TensorProto.INT64)
    placed = op.choose(op("Less", wide, 0), op("Add", wide, number), wide)
    classes = op.up_to(number)
    column = rw.op("Reshape", rw.constant(classes) if isinstance(classes, np.ndarray) else classes,
                   integers(-1, *(1,) * (rank - 1 - axis)))  # fmt: skip
    chosen = rw.op("Equal", rw.op("Unsqueeze", placed, axes=[axis]), column)
    off, on = (rw.op("Gather", values, np.asarray(at, np.int64), axis=0) for at in (0, 1))
    rw.replace(node, [rw.op("Where", chosen, on, off)])


@down(9, "Scatter")
def last_that_is_written(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather each element from the last update at its position, or from the data if there is none."""
    x, indices, updates = (node.operand(i) for i in range(3))
    op, sizes, count = Counting(rw), x.sizes(), math.prod(indices.sizes())
    if not count:
        rw.replace(node, [rw.op("Identity", x)])
        return
    number = math.prod(sizes)
    places = flat(rw, flat_positions(rw, x, indices, x.axis(node.attr("axis", 0))))
    own = np.arange(number, dtype=np.int64)
    here = rw.op("Cast", rw.op("Equal", places, own[:, None]), to=TensorProto.INT64)
    order = op("Mul", here, np.arange(1, count + 1, dtype=np.int64))
    last = rw.op("ReduceMax", order, axes=[1], keepdims=0)
    source = op.choose(op("Less", last, 1), own, op("Add", last, number - 1))
    both = rw.op("Concat", flat(rw, x), flat(rw, updates), axis=0)
    rw.replace(node, [reshaped(rw, rw.op("Gather", both, source, axis=0), np.asarray(sizes, np.int64))])


@down(9, "MaxUnpool")
def scattered_into_zeros(node: Node, change: Change, rw: Rewriter) -> None:
    """Scatter each element into zeros by its index."""
    x, indices, sizes = node.operand(0), node.operand(1), node.result.sizes()
    if node.input(2) is not None:
        raise Decline("there is no MaxUnpool before opset 9, and output_shape is given")
    zeros = np.zeros(math.prod(sizes), number_like(x, 0).dtype)
    written = rw.op("Scatter", zeros, flat(rw, indices), flat(rw, x), axis=0)
    rw.replace(node, [reshaped(rw, written, np.asarray(sizes, np.int64))])


@down(11, "Unique")
def compared_with_each_other(node: Node, change: Change, rw: Rewriter) -> None:
    """Compare all pairs of rows: the index of a row is the number of distinct rows before it."""
    x, axis, op = node.operand(0), node.attrs.get("axis"), Counting(rw)
    if x.dtype == TensorProto.STRING:
        raise Decline("there is no Unique before opset 11, and its operand holds strings")
    along = 0
    if axis is None:
        x = flat(rw, x)
        rows = rw.op("Unsqueeze", x, axes=[1])
    else:
        rank = len(x.dims())
        along = x.axis(axis)
        first = rw.op("Transpose", x, perm=[along, *(a for a in range(rank) if a != along)])
        rows = rw.op("Flatten", first, axis=1)
    count = rw.op("Gather", rw.op("Shape", rows), integers(0), axis=0)
    own = op.up_to(count)
    equal, less = _rows_compared(rw, rows)
    same = rw.op("Equal", rw.op("Unsqueeze", own, axes=[1]), own)
    equal = rw.op("Or", equal, same)
    first_of = rw.op("ArgMax", rw.op("Cast", equal, to=TensorProto.INT32), axis=1, keepdims=0)
    is_first = rw.op("Equal", first_of, own)
    if not node.attr("sorted", 1):
        less = op("Less", own, rw.op("Unsqueeze", first_of, axes=[1]))
    before = rw.op("Cast", rw.op("And", less, is_first), to=TensorProto.INT64)
    number = rw.op("ReduceSum", before, axes=[1], keepdims=0)
    total = rw.op("ReduceSum", rw.op("Cast", is_first, to=TensorProto.INT64), axes=[0], keepdims=1)
    kinds = rw.op("Cast", rw.op("Equal", rw.op("Unsqueeze", op.up_to(total), axes=[1]), number), to=TensorProto.INT32)
    places = rw.op("ArgMax", kinds, axis=1, keepdims=0)
    counts = rw.op("ReduceSum", rw.op("Cast", kinds, to=TensorProto.INT64), axes=[1], keepdims=0)
    found = [rw.op("Gather", x, places, axis=along), places, number, counts]
    rw.replace(node, found[: len(node.outputs)])


def _rows_compared(rw: Rewriter, rows: Value) -> tuple[Value, Value]:
    """For each pair of rows whether they are equal, and whether the second is less in lexicographic order."""
    own, other = rw.op("Unsqueeze", rows, axes=[1]), rw.op("Unsqueeze", rows, axes=[0])
    apart = rw.op("Cast", rw.op("Not", rw.op("Equal", own, other)), to=TensorProto.INT32)
    equal = rw.op("Equal", rw.op("ReduceMax", apart, axes=[2], keepdims=0), np.asarray(0, np.int32))
    column = rw.op("ArgMax", apart, axis=2, keepdims=1)
    width = rw.op("Gather", rw.op("Shape", rows), integers(1), axis=0)
    there = rw.op("Equal", column, Counting(rw).up_to(width))
    less = rw.op("Cast", rw.op("And", there, rw.op("Less", other, own)), to=TensorProto.INT32)
    return equal, rw.op("Equal", rw.op("ReduceMax", less, axes=[2], keepdims=0), np.asarray(1, np.int32))
