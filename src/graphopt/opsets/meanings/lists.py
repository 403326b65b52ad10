"""Lists of axes, starts, ends and sizes: as attributes or operands, and with negative axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor, Value
from graphopt.operators import Slice, Split
from graphopt.operators.reduce import REDUCTIONS
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down, up
from graphopt.opsets.meanings.reshaping import reshaped
from graphopt.opsets.types import lacking
from graphopt.rewrite import Rewriter


@down(
    11, "ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Gather", "Hardmax", "LogSoftmax", "OneHot",
    "ScatterElements", "Softmax", "Split", "Squeeze", "Unsqueeze", *REDUCTIONS,
)  # fmt: skip
def counted_from_the_front(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace negative axes, which opset 11 introduced."""
    name = "axes" if "axes" in node.attrs else "axis"
    stated = node.attrs.get(name, node.attr(name))
    listed = stated if isinstance(stated, tuple) else (stated,)
    if stated is not None and any(axis < 0 for axis in listed):
        more = len(listed) if node.op_type == "Unsqueeze" else int(node.op_type == "OneHot")
        rank = len(node.operand(0).dims()) + more
        axes = tuple(axis + rank if axis < 0 else axis for axis in listed)
        rw.set_attr(node, **{name: axes if isinstance(stated, tuple) else axes[0]})
    if node.op_type in ("Squeeze", "Unsqueeze") and (places := node.attrs.get("axes")):
        rw.set_attr(node, axes=tuple(sorted(places)))  # shape inference requires ascending axes
    if node.op_type == "ScatterElements":
        yield
        rw.replace(node, [rw.op("Scatter", *node.inputs, **node.attrs)])
    else:
        yield from automatic.down(node, change, rw)


@down(11, "Scan")
def scanned_from_the_front(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace negative axes of scanned operands and results; a result that is left out has any axis."""
    states = len(node.inputs) - node.attr("num_scan_inputs")
    for name, values in (("scan_input_axes", node.inputs), ("scan_output_axes", node.outputs)):
        axes = node.attr(name) or ()
        if any(axis < 0 for axis in axes):
            pairs = zip(values[states:], axes, strict=False)
            rw.set_attr(node, **{name: tuple(_in_front(value, axis) for value, axis in pairs)})
    yield from automatic.down(node, change, rw)


def _in_front(value: Value | None, axis: int) -> int:
    """An axis counted from the front; of a value that is left out, any."""
    return axis if axis >= 0 else 0 if value is None else value.axis(axis)


@up(11, "Compress")
def lists_are_compressed(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Reshape a scalar to a list of one, which is required from opset 11 on."""
    x = node.operand(0)
    if x.rank == 0:
        rw.set_input(node, 0, rw.op("Reshape", x, np.asarray([1], np.int64)))
    yield from automatic.up(node, change, rw)


@up(11, "Scatter")
def called_scatter_elements(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Rename `Scatter` to `ScatterElements`."""
    yield
    rw.replace(node, [rw.op("ScatterElements", *node.inputs, **node.attrs)])


@down(11, "Slice")
def axes_from_the_front(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace negative axes of a `Slice`."""
    axes = node.ints("axes") if node.input(3) is not None else None
    if axes and min(axes) < 0:
        x = node.operand(0)
        rw.set_inputs(node, {3: np.asarray([x.axis(axis) for axis in axes], np.int64)})
    yield from automatic.down(node, change, rw)


@down(10, "Slice")
def without_steps(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace a slice with steps other than 1 by `Gather`, if the size of the axis is known."""
    x, steps = node.operand(0), node.ints("steps")
    if steps is None:
        yield from automatic.down(node, change, rw)
        return
    if set(steps) - {1}:
        result = x
        for axis, cut in Slice.of(node).cuts.items():
            positions = np.asarray(cut.positions(x.size(axis)), np.int64)
            result = rw.op("Gather", result, positions, axis=axis)
        rw.replace(node, [result])
        return
    rw.set_input(node, 4, None)
    yield from automatic.down(node, change, rw)


@up(18, "Split")
def number_of_parts(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """State the number of equal parts."""
    yield
    if node.input(1) is None:
        rw.set_attr(node, num_outputs=len(node.outputs))


@down(18, "Split")
def sizes_of_parts(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """State the sizes of the parts if the last one is smaller, or the size is not known."""
    sizes, count = None, node.attrs.get("num_outputs")
    if count is not None and not _is_known(node.operand(0), node.attr("axis", 0)):
        size = _size(rw, node.operand(0), node.attr("axis", 0))
        each = rw.op("Div", rw.op("Add", size, np.asarray([count - 1])), np.asarray([count]))
        last = rw.op("Sub", size, rw.op("Mul", each, np.asarray([count - 1])))
        rw.set_inputs(node, {1: rw.op("Concat", *[each] * (count - 1), last, axis=0)}, num_outputs=None)
    elif count is not None:
        sizes = Split.of(node).sizes
        rw.set_attr(node, num_outputs=None)
    yield
    if sizes is not None and len(set(sizes)) > 1:
        rw.set_input(node, 1, np.asarray(sizes, np.int64))


def _is_known(x: Value, axis: int) -> bool:
    """Whether the size of an axis is known."""
    return x.shape is not None and isinstance(x.shape[x.axis(axis)], int)


_OF_NOTHING = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}


@down(18, *(REDUCTIONS - {"ReduceSum"}))
@down(13, "ReduceSum")
def reduces_nothing(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Write out a reduction over no axes: before, an empty list of axes means all of them."""
    axes = node.ints("axes")
    if not axes and node.attr("noop_with_empty_axes", 0):
        x = node.operand(0)
        if node.op_type == "ReduceSumSquare":
            rw.replace(node, [rw.op("Mul", x, x)])
        else:
            rw.replace(node, [rw.op(_OF_NOTHING.get(node.op_type, "Identity"), x)])
        return
    if axes is not None and not axes:
        rw.set_input(node, 1, None)
    if "noop_with_empty_axes" in node.attrs:
        rw.set_attr(node, noop_with_empty_axes=None)
    yield from automatic.down(node, change, rw)


@down(13, "Squeeze", "Unsqueeze")
def axes_by_shape(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace computed axes by a `Reshape`, if the shape of the result is known."""
    axes = node.input(1)
    if axes is not None and not axes.is_const:
        shape = node.result.shape
        if shape is None or any(not isinstance(dim, int) for dim in shape):
            raise Decline("{} is not constant", axes.name)
        rw.replace(node, [reshaped(rw, node.operand(0), np.asarray(shape, np.int64))])
        return
    if axes is not None and len(np.unique(axes.array())) < axes.array().size:
        raise Decline("{} names an axis twice", axes.name)
    yield from automatic.down(node, change, rw)


@down(15, "Shape")
def part_of_a_shape(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace a part of a shape with a constant if known, else with `Gather`, through which runtimes infer shapes."""
    start, end = node.attrs.get("start", 0), node.attrs.get("end")
    if not start and end is None:
        yield from automatic.down(node, change, rw)
        return
    x = node.operand(0)
    whole = rw.op("Shape", x)
    if x.shape is not None:
        places = range(x.rank or 0)[start:end]
        sizes = [size for place in places if isinstance(size := x.shape[place], int)]
        if places and len(sizes) == len(places) and all(sizes):  # the runtime refuses to load a division by constant 0
            rw.replace(node, [rw.op("Constant", value=Tensor.from_array(np.asarray(sizes, np.int64)))])
            return
        if places:
            rw.replace(node, [rw.op("Gather", whole, np.asarray(places, np.int64), axis=0)])
            return
    ends = [np.iinfo(np.int64).max if end is None else end]
    rw.replace(node, [rw.op("Slice", whole, starts=[start], ends=ends, axes=[0])])


@down(10, "TopK")
def number_by_attribute(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Turn k into an attribute."""
    count = node.operand(1).integer()
    yield
    rw.set_inputs(node, {1: None}, k=count)


@down(11, "TopK")
def largest_first(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Find the smallest as the largest negated numbers; drop `sorted`, since unsorted results may be in any order."""
    x, smallest = node.operand(0), not node.attr("largest", 1)
    if x.dtype in (TensorProto.INT64, TensorProto.UINT64):
        _by_places(node, rw, smallest=smallest)
        return
    if any(True for _ in lacking(node, change.before)):  # type: ignore[arg-type]  # the standard had it
        yield from automatic.down(node, change, rw)
        return
    if smallest:
        axis = node.attr("axis", -1)
        values, indices = rw.outputs(2, "TopK", rw.op("Neg", x), node.operand(1), axis=axis)
        rw.replace(node, [rw.op("Neg", values), indices])
        return
    axis = node.attr("axis", -1)
    stated = {"axis": x.axis(axis)} if axis < -1 else {}
    yield
    rw.set_attr(node, largest=None, sorted=None, **stated)


def _by_places(node: Node, rw: Rewriter, *, smallest: bool) -> None:
    """Sort integers that floats do not represent by their ranks, which floats do."""
    x, rank = node.operand(0), len(node.operand(0).dims())
    axis = x.axis(node.attr("axis", -1))
    numbers = np.arange(x.size(axis))
    own, other = rw.op("Unsqueeze", x, axes=[axis + 1]), rw.op("Unsqueeze", x, axes=[axis])
    earlier = (numbers < numbers[:, None]).reshape(len(numbers), len(numbers), *[1] * (rank - 1 - axis))
    first = rw.op("Less" if smallest else "Greater", other, own)
    before = rw.op("Or", first, rw.op("And", rw.op("Equal", own, other), earlier))
    place = rw.op("ReduceSum", rw.op("Cast", before, to=TensorProto.FLOAT), axes=[axis + 1], keepdims=0)
    indices = rw.outputs(2, "TopK", rw.op("Neg", place), node.operand(1), axis=axis)[1]
    rw.replace(node, [rw.op("GatherElements", x, indices, axis=axis), indices])


@down(12, "ArgMax", "ArgMin")
def last_of_equals(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Find the last of equal numbers as the first in the reversed axis."""
    if not node.attr("select_last_index", 0):
        yield from automatic.down(node, change, rw)
        return
    x, axis = node.operand(0), node.attr("axis", 0)
    backward = rw.op("Slice", x, starts=[-1], ends=[np.iinfo(np.int64).min], axes=[axis], steps=[-1])
    found = rw.op(node.op_type, backward, axis=axis, keepdims=node.attr("keepdims", 1))
    size = rw.op("Gather", rw.op("Shape", x), np.asarray(axis, np.int64))  # a scalar: the result may have rank 0
    last = rw.op("Sub", size, np.asarray(1, np.int64))
    rw.replace(node, [rw.op("Sub", last, found)])


def _size(rw: Rewriter, x: Value, axis: int) -> Any:
    """The number of elements along an axis, as a list of one."""
    return rw.op("Gather", rw.op("Shape", x), np.asarray([axis], np.int64))
