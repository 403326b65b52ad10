"""Slicing, padding and choosing by computed positions, for operands that are attributes in older versions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.bodies import called
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import function_of, integers, listed, times_meant
from graphopt.opsets.meanings.registry import Step, down, down_at_last
from graphopt.opsets.meanings.reshaping import reshaped
from graphopt.rewrite import Rewriter

_RANGE_SINCE = 11
_FAR = np.iinfo(np.int64).max
Number = Value | np.ndarray


class Counting:
    """Arithmetic of 64-bit integers in operators of any opset.

    Args:
        rw: the gate.
    """

    def __init__(self, rw: Rewriter) -> None:
        self._rw = rw

    def __call__(self, op_type: str, *operands: Number | int) -> Value:
        """Build an integer operator; plain numbers become constants."""
        given = (np.asarray(each, np.int64) if isinstance(each, int) else each for each in operands)
        return self._rw.op(op_type, *given)

    def choose(self, truth: Value, one: Number | int, other: Number | int) -> Value:
        """`one` where `truth` holds, elsewhere `other`."""
        return self("Where", truth, one, other)

    def size(self, x: Value, axis: int) -> Number:
        """The size of an axis, as a list of one."""
        known = None if x.shape is None else x.shape[axis]
        if isinstance(known, int):
            return integers(known)
        return self._rw.op("Gather", self._rw.op("Shape", x), integers(axis), axis=0)

    def up_to(self, count: Number) -> Number:
        """The numbers 0, 1, ..., count - 1, for a count that is a list of one."""
        if isinstance(count, np.ndarray):
            return np.arange(int(count.reshape(-1)[0]), dtype=np.int64)
        scalar = self._rw.op("Reshape", count, integers())
        if self._rw.graph.opset() >= _RANGE_SINCE:
            return self("Range", 0, scalar, 1)
        function = function_of(["count", "on"], ["numbers"], [_counting()], self._rw.graph.opset())
        return called(self._rw, function, scalar, self._rw.constant(np.asarray(True)))[0]


def _counting() -> onnx.NodeProto:
    """A loop that outputs its iteration numbers; until opset 10 it must carry a value."""
    kinds = {"at": TensorProto.INT64, "on": TensorProto.BOOL, "last": TensorProto.INT64}
    results = {"again": ("on", TensorProto.BOOL), "now": ("at", TensorProto.INT64), "number": ("at", TensorProto.INT64)}
    body = helper.make_graph(
        [helper.make_node("Identity", [read], [name]) for name, (read, _) in results.items()],
        "counting",
        [helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(name, kind, []) for name, (_, kind) in results.items()],
    )
    return helper.make_node("Loop", ["count", "on", "count"], ["end", "numbers"], body=body)


@down_at_last(11, "Slice")
def computed_axes_from_the_front(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Make computed axes nonnegative by adding the rank."""
    rank = len(node.operand(0).dims())
    yield
    axes = node.operand(3)
    wide = axes if axes.dtype == TensorProto.INT64 else rw.op("Cast", axes, to=TensorProto.INT64)
    changed = {3: rw.op("Mod", rw.op("Add", wide, integers(rank)), integers(rank))}
    if axes.dtype != TensorProto.INT64:
        others = {at: value for at in (1, 2, 4) if (value := node.input(at)) is not None}
        changed |= {at: rw.op("Cast", value, to=TensorProto.INT64) for at, value in others.items()}
    rw.set_inputs(node, dict(changed))


@down_at_last(10, "Slice")
def gathered_from_start_to_end(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather computed positions along each sliced axis."""
    x, rank = node.operand(0), len(node.operand(0).dims())
    op = Counting(rw)
    lists = [None if (v := node.input(i)) is None else rw.op("Cast", v, to=TensorProto.INT64) for i in (1, 2, 4)]
    axes = node.input(3)
    places: dict[int, int] = {}
    if axes is None:
        places = {axis: axis for axis in range(node.operand(1).size(0))}
    elif axes.is_const:
        places = {x.axis(axis): place for place, axis in enumerate(axes.ints())}
    result = x
    for axis in range(rank):
        if axes is not None and not places:
            start, end, step = _meant_for(rw, lists, axes, rank, axis)
        elif axis in places:
            start, end, step = (
                integers(1) if each is None else rw.op("Gather", each, integers(places[axis]), axis=0) for each in lists
            )
        else:
            continue
        result = rw.op("Gather", result, _from_to(op, op.size(x, axis), start, end, step), axis=axis)
    rw.replace(node, [rw.op("Identity", x) if result is x else result])


def _meant_for(rw: Rewriter, lists: list[Value | None], axes: Value, rank: int, axis: int) -> list[Number]:
    """Start, end and step of an axis that a computed list may contain; those of the whole axis if it does not."""
    op, place = Counting(rw), integers(axis)
    named = rw.op("Gather", times_meant(rw, axes, rank), place, axis=0)
    found: list[Number] = []
    for each, otherwise in zip(lists, (0, _FAR, 1), strict=True):
        if each is None:
            found.append(integers(1))
            continue
        own = rw.op("Gather", times_meant(rw, axes, rank, each), place, axis=0)
        found.append(op.choose(op("Equal", named, 0), integers(otherwise), own))
    return found


def _from_to(op: Counting, size: Number, start: Number, end: Number, step: Number) -> Number:
    """The positions of a slice."""
    forward = op("Less", integers(0), step)
    step = _between(op, step, op("Sub", integers(-1), size), op("Add", size, 1))
    lowest_end = op.choose(forward, integers(0), integers(-1))
    highest = op.choose(forward, size, op("Sub", size, 1))

    def bounded(number: Number, low: Number) -> Value:
        counted = op.choose(op("Less", number, 0), op("Add", number, size), number)
        return _between(op, counted, low, highest)

    start, end = bounded(start, integers(0)), bounded(end, lowest_end)
    sign = op.choose(forward, integers(1), integers(-1))
    reach = op("Add", op("Sub", end, start), op("Sub", step, sign))
    count = op("Div", reach, step)
    # The quotient is rounded towards zero, which is correct except for empty slices, whose reach has the other sign.
    count = op.choose(op("Less", op("Mul", op("Sub", end, start), sign), 1), integers(0), count)
    return op("Add", start, op("Mul", op.up_to(count), step))


def _between(op: Counting, number: Number, low: Number, high: Number) -> Value:
    capped = op.choose(op("Less", number, high), number, high)
    return op.choose(op("Less", capped, low), low, capped)


@down_at_last(18, "Pad")
def computed_pads_of_all_axes(node: Node, change: Change, rw: Rewriter) -> None:
    """Extend computed pads of some axes to all axes."""
    x, axes = node.operand(0), node.operand(3)
    rank = len(x.dims())
    count, pads = axes.size(0), listed(rw, node.operand(1))
    halves = [
        times_meant(rw, axes, rank, rw.op("Slice", pads, starts=[at], ends=[at + count], axes=[0])) for at in (0, count)
    ]
    value, attrs = node.input(2), dict(node.attrs)
    rw.replace(node, [rw.op("Pad", x, rw.op("Concat", *halves, axis=0), value, **attrs)])


@down_at_last(19, "Pad")
@down_at_last(11, "Pad")
def gathered_with_its_surroundings(node: Node, change: Change, rw: Rewriter) -> None:
    """Gather computed positions along each axis; constant padding is an element appended to the axis."""
    x, pads, value = node.operand(0), listed(rw, node.operand(1)), node.input(2)
    mode = node.attr("mode", "constant")
    if change.version == 19 and (mode != "wrap" or node.input(3) is not None):
        raise Decline
    op, rank = Counting(rw), len(x.dims())
    result = x
    for axis in range(rank):
        before, after = (rw.op("Gather", pads, integers(at), axis=0) for at in (axis, axis + rank))
        size = op.size(x, axis)
        places = op("Sub", op.up_to(op("Add", size, op("Add", before, after))), before)
        inside = rw.op("And", op("Less", integers(-1), places), op("Less", places, size))
        if mode == "constant":
            shape = rw.op("Shape", result)
            kept = np.asarray([at != axis for at in range(rank)], np.int64)
            one = op("Add", op("Mul", shape, kept), 1 - kept)
            fill = value if value is not None else _zero_of(x)
            fill = fill if isinstance(fill, np.ndarray) or not fill.dims() else rw.op("Squeeze", fill, axes=[0])
            result = rw.op("Concat", result, rw.op("Expand", fill, one), axis=axis)
            places = op.choose(inside, places, size)
        elif mode == "edge":
            places = op.choose(op("Less", places, 0), integers(0), op.choose(inside, places, op("Sub", size, 1)))
        elif mode == "wrap":
            cut, cut_behind = (op.choose(op("Less", pad, 0), op("Neg", pad), 0) for pad in (before, after))
            left = op("Sub", size, op("Add", cut, cut_behind))
            places = op("Add", cut, op("Mod", op("Sub", places, cut), left))
        else:
            last = op("Sub", size, 1)
            from_start = op.choose(op("Less", places, 0), op("Neg", places), places)
            beyond = op("Sub", op("Mul", last, 2), from_start)
            places = op.choose(op("Less", from_start, size), from_start, beyond)
        result = rw.op("Gather", result, places, axis=axis)
    rw.replace(node, [rw.op("Identity", x) if result is x else result])


def _zero_of(x: Value) -> np.ndarray:
    return np.zeros((), helper.tensor_dtype_to_np_dtype(x.element_type()))


@down_at_last(9, "Where")
def chosen_by_position(node: Node, change: Change, rw: Rewriter) -> None:
    """Expand all three operands, and gather each element from the concatenation of both values."""
    chosen, x, y = (node.operand(index) for index in range(3))
    op = Counting(rw)
    truth = rw.op("Cast", chosen, to=TensorProto.INT64)
    for other in (x, y):
        truth = rw.op("Expand", truth, rw.op("Shape", other))
    shape = rw.op("Shape", truth)
    both = [rw.op("Reshape", rw.op("Expand", each, shape), integers(-1)) for each in (x, y)]
    count = rw.op("Shape", both[0])
    pair, rank = rw.op("Concat", *both, axis=0), node.result.rank
    if rank is None or rank == 0:
        flat = rw.op("Reshape", truth, integers(-1))
        places = op("Add", op("Mul", op("Sub", 1, flat), count), op.up_to(count))
        rw.replace(node, [rw.op("Reshape", rw.op("Gather", pair, places, axis=0), shape)])
        return
    # The positions have the shape of the result: in a Reshape a size of 0 would copy another size.
    places = op("Add", op("Mul", op("Sub", 1, truth), count), _places(rw, op, shape, rank))
    rw.replace(node, [rw.op("Gather", pair, places, axis=0)])


def _places(rw: Rewriter, op: Counting, shape: Value, rank: int) -> Number:
    """All numbers below a product of sizes, in its shape: counted along each axis, in fewer steps than all at once."""
    total: Number = np.asarray(0, np.int64)
    for axis in range(rank):
        size = rw.op("Gather", shape, integers(axis), axis=0)
        total = op("Add", op("Mul", rw.op("Unsqueeze", total, axes=[axis]), size), op.up_to(size))
    return total


@down(10, "ReverseSequence")
def steps_from_behind(node: Node, change: Change, rw: Rewriter) -> None:
    """Flatten time and batch to one axis, and gather each step from its mirrored position in the sequence."""
    x, lengths = node.operand(0), node.operand(1)
    op, rank = Counting(rw), len(x.dims())
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    perm = [time, batch, *(axis for axis in range(rank) if axis not in (time, batch))]
    first = rw.op("Transpose", x, perm=perm) if perm != list(range(rank)) else x
    steps, rows = op.size(x, time), op.size(x, batch)
    at = rw.op(
        "Unsqueeze", rw.constant(numbers) if isinstance(numbers := op.up_to(steps), np.ndarray) else numbers, axes=[1]
    )
    place = op.choose(op("Less", at, lengths), op("Sub", op("Sub", lengths, 1), at), at)
    flat = op("Add", op("Mul", place, rows), op.up_to(rows))
    shape = rw.op("Shape", first)
    rest = rw.op("Slice", shape, starts=[2], ends=[_FAR], axes=[0])
    dims = [x.dims()[axis] for axis in perm]
    number = dims[0] * dims[1] if isinstance(dims[0], int) and isinstance(dims[1], int) else None
    merged = reshaped(rw, first, rw.op("Concat", op("Mul", steps, rows), rest, axis=0), [number, *dims[2:]])
    result = rw.op("Gather", merged, rw.op("Reshape", flat, integers(-1)), axis=0)
    result = reshaped(rw, result, shape, dims, copied=())
    rw.replace(
        node, [rw.op("Transpose", result, perm=[perm.index(a) for a in range(rank)]) if first is not x else result]
    )


@down(11, "DepthToSpace")
def columns_before_rows(node: Node, change: Change, rw: Rewriter) -> Step:
    """Write out mode CRD, the order of torch: channels first, then rows and columns of a block."""
    if node.attr("mode", "DCR") != "CRD":
        return automatic.down(node, change, rw)
    x, block, op = node.operand(0), node.attr("blocksize"), Counting(rw)
    batch, channels, height, width = (op.size(x, axis) for axis in range(4))
    depth = op("Div", channels, block * block)
    side = integers(block)
    some, _, *sizes = x.dims()
    parts = rw.op("Concat", batch, depth, side, side, height, width, axis=0)
    apart = reshaped(rw, x, parts, [some, None, block, block, *sizes], copied={0, 1})
    woven = rw.op("Transpose", apart, perm=[0, 1, 4, 2, 5, 3])
    shape = rw.op("Concat", batch, depth, op("Mul", height, block), op("Mul", width, block), axis=0)
    # Without rows the third axis of both values is 0; without columns only the fourth axis of the result.
    rw.replace(node, [reshaped(rw, woven, shape, [some, None, *sizes], copied={0, 1, 2})])
    return None
