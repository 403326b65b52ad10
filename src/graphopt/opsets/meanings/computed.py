"""Operands that are computed at run time: for axes, one node per possible axis, in a branch that tests the list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.ir.flush import emit
from graphopt.operators.reduce import REDUCTIONS
from graphopt.opsets.bodies import called
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down_at_last
from graphopt.rewrite import Rewriter

_BEFORE = {"ReduceL1": ("Abs",), "ReduceL2": ("Abs",), "ReduceSumSquare": ("Mul",)}
_MADE_OF = {"ReduceLogSum": "ReduceSum", "ReduceSumSquare": "ReduceSum"}
_OF_ANY = frozenset({"ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"})
"""Reductions that can be done axis by axis for integers, too."""


def integers(*numbers: int) -> np.ndarray:
    """An int64 array of axes, sizes or positions."""
    return np.asarray(numbers, np.int64)


def listed(rw: Rewriter, numbers: Value) -> Value:
    """Numbers as a list of rank 1, as the standard requires; runtimes accept other ranks if the list is computed."""
    return numbers if numbers.rank in (None, 1) else rw.op("Reshape", numbers, integers(-1))


def function_of(
    inputs: list[str], outputs: list[str], nodes: Iterable[onnx.NodeProto], opset: int
) -> onnx.FunctionProto:
    """A function body for expansion."""
    return helper.make_function("written.out", "body", inputs, outputs, list(nodes), [helper.make_opsetid("", opset)])


def branch(name: str, nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    """A branch with one output of undeclared type."""
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(output)])


def list_node(name: str, *numbers: int) -> onnx.NodeProto:
    """A `Constant` with a list of integers."""
    tensor = onnx.numpy_helper.from_array(integers(*numbers), name)
    return helper.make_node("Constant", [], [name], value=tensor)


def where_meant(
    rw: Rewriter, x: Value, meant: Value, order: range, op_type: str, **attrs: Any
) -> Value:  # fmt: skip
    """Apply an operator along each selected axis, one after the other.

    Args:
        rw: the gate.
        x: the first operand.
        meant: a boolean for each axis, whether it is selected.
        order: the axes, in the order of application.
        op_type: the operator, whose second operand is a list of axes.
        **attrs: its attributes.
    """
    nodes, current = [], "x"
    if not order:
        return x
    x = _of_no_known_shape(rw, x, meant)
    for axis in order:
        done, kept, result = f"done{axis}", f"kept{axis}", f"y{axis}"
        applied = helper.make_node(op_type, [current, f"axes{axis}"], [done], **attrs)
        nodes += [
            list_node(f"place{axis}", axis),
            helper.make_node("Gather", ["meant", f"place{axis}"], [f"on{axis}"], axis=0),
            helper.make_node(
                "If", [f"on{axis}"], [result],
                then_branch=branch("along", [list_node(f"axes{axis}", axis), applied], done),
                else_branch=branch("kept", [helper.make_node("Identity", [current], [kept])], kept),
            ),
        ]  # fmt: skip
        current = result
    return called(rw, function_of(["x", "meant"], [current], nodes, rw.graph.opset()), x, meant)[0]


def _of_no_known_shape(rw: Rewriter, x: Value, meant: Value) -> Value:
    """The same value without an inferable shape: until opset 10 inferred shapes of both branches must be equal."""
    first = rw.op("Gather", meant, integers(0), axis=0)
    one = rw.op("Add", *(rw.op("Cast", each, to=TensorProto.INT64) for each in (first, rw.op("Not", first))))
    return rw.op("Reshape", x, rw.op("Mul", rw.op("Shape", x), one))


def meant_axes(rw: Rewriter, axes: Value, rank: int) -> Value:
    """For each axis whether a list of axes, possibly negative, contains it."""
    return rw.op("Cast", times_meant(rw, axes, rank), to=TensorProto.BOOL)


def times_meant(rw: Rewriter, axes: Value, rank: int, numbers: Value | None = None) -> Value:
    """For each axis how often a list contains it, or the sum of the numbers at the same positions of another list."""
    wide = axes if axes.dtype == TensorProto.INT64 else rw.op("Cast", axes, to=TensorProto.INT64)
    # Adding the rank makes negative axes positive before Mod, which also wraps the others back.
    placed = rw.op("Mod", rw.op("Add", wide, integers(rank)), integers(rank))
    column = rw.op("Reshape", placed, integers(-1, 1))
    equal = rw.op("Cast", rw.op("Equal", column, np.arange(rank, dtype=np.int64)), to=TensorProto.INT64)
    if numbers is not None:
        equal = rw.op("Mul", equal, rw.op("Reshape", numbers, integers(-1, 1)))
    return rw.op("ReduceSum", equal, axes=[0], keepdims=0)


@down_at_last(18, *(REDUCTIONS - {"ReduceSum"}))
@down_at_last(13, "ReduceSum")
def reduced_where_meant(node: Node, change: Change, rw: Rewriter) -> None:
    """Reduce axis by axis, which gives the same result except for integers in means and powers."""
    x, axes = node.operand(0), node.operand(1)
    op_type = node.op_type
    if op_type not in _OF_ANY and x.dtype not in FLOAT_TYPES:
        raise Decline("{} is not constant", axes.name)
    rank = len(x.dims())
    meant = meant_axes(rw, axes, rank)
    if not node.attr("noop_with_empty_axes", 0):
        meant = rw.op("Or", meant, rw.op("Equal", rw.op("Size", axes), np.asarray(0, np.int64)))
    before = _BEFORE.get(op_type, ())
    if before == ("Mul",):
        x = rw.op("Mul", x, x)
    elif before:
        x = rw.op("Abs", x)
    made_of = _MADE_OF.get(op_type, op_type)
    result = where_meant(rw, x, meant, range(rank - 1, -1, -1), made_of, keepdims=node.attr("keepdims", 1))
    rw.replace(node, [rw.op("Log", result) if op_type == "ReduceLogSum" else _made(rw, result)])


def _made(rw: Rewriter, value: Value) -> Value:
    return rw.op("Identity", value) if value.name else value


@down_at_last(13, "Squeeze", "Unsqueeze")
def axes_where_meant(node: Node, change: Change, rw: Rewriter) -> None:
    """Squeeze axis by axis from the last one, or unsqueeze from the first one."""
    x, axes = node.operand(0), node.operand(1)
    rank = len(x.dims())
    order = range(rank - 1, -1, -1)
    if node.op_type == "Unsqueeze":
        rank += axes.size(0)
        order = range(rank)
    rw.replace(node, [_made(rw, where_meant(rw, x, meant_axes(rw, axes, rank), order, node.op_type))])


@down_at_last(13, "Split")
def cut_at_computed_places(node: Node, change: Change, rw: Rewriter) -> None:
    """Slice each part from the end of the previous one; runtimes interpret an empty list of sizes as equal parts."""
    x, sizes = node.operand(0), node.operand(1)
    if sizes.shape == (0,):
        rw.replace(node, rw.outputs(len(node.outputs), "Split", x, **node.attrs))
        return
    axis = integers(node.attr("axis", 0))
    start: Value | np.ndarray = integers(0)
    parts = []
    for number in range(len(node.outputs)):
        end = rw.op("Add", start, rw.op("Gather", sizes, integers(number), axis=0))
        parts.append(rw.op("Slice", x, start, end, axis))
        start = end
    rw.replace(node, parts)


@down_at_last(10, "TopK")
def all_of_them_cut(node: Node, change: Change, rw: Rewriter) -> None:
    """Sort all elements, and slice the first k."""
    x, count = node.operand(0), node.operand(1)
    axis = node.attr("axis", -1)
    axis = axis + len(x.dims()) if axis < 0 else axis
    sorted_ = rw.outputs(2, "TopK", x, integers(x.size(axis)), axis=axis)
    rw.replace(node, [rw.op("Slice", each, integers(0), count, integers(axis)) for each in sorted_])


@down_at_last(20, "DFT")
@down_at_last(26, "CumProd")
@down_at_last(11, "CumSum")
def along_each_axis(node: Node, change: Change, rw: Rewriter) -> None:
    """Branch on the axis: the operator is written for each axis, and only the selected branch runs."""
    place = 2 if node.op_type == "DFT" else 1
    axis, rank = node.operand(place), len(node.operand(0).dims())
    if axis.is_const:
        raise Decline
    count = rank - 1 if node.op_type == "DFT" else rank
    wide = rw.op("Reshape", rw.op("Cast", axis, to=TensorProto.INT64), integers())
    placed = rw.op("Mod", rw.op("Add", wide, np.asarray(rank, np.int64)), np.asarray(rank, np.int64))
    operands = [value for i, value in enumerate(node.inputs) if value is not None and i != place]
    names = [f"x{i}" for i, value in enumerate(node.inputs) if value is not None and i != place]
    nodes, current = [], ""
    for number in range(count):
        stated, done, hidden = _along(node, number, place)
        if not current:
            nodes += [stated, done, *hidden]
            current = f"found{number}"
            continue
        kept = helper.make_node("Identity", [current], [f"kept{number}"])
        nodes += [
            stated,
            helper.make_node("Equal", ["axis", f"axis{number}"], [f"on{number}"]),
            helper.make_node(
                "If", [f"on{number}"], [f"y{number}"],
                then_branch=branch("along", [done, *hidden], f"found{number}"),
                else_branch=branch("kept", [kept], kept.output[0]),
            ),
        ]  # fmt: skip
        current = f"y{number}"
    body = function_of([*names, "axis", "one"], [current], nodes, rw.graph.opset())
    one = rw.op("Cast", rw.op("Equal", placed, placed), to=TensorProto.INT64)
    rw.replace(node, [called(rw, body, *operands, placed, one)[0]])


def _along(node: Node, number: int, place: int) -> tuple[onnx.NodeProto, onnx.NodeProto, list[onnx.NodeProto]]:
    """An axis, an operator along it, and nodes that hide the shape of its result from inference.

    Until opset 10 inferred shapes of both branches must be equal.
    """
    done = onnx.NodeProto()
    done.CopyFrom(emit(node))
    read = [f"x{i}" if v is not None else "" for i, v in enumerate(node.inputs)]
    read[place] = f"axis{number}"
    del done.input[:], done.output[:]
    done.input.extend(read)
    done.output.append(f"done{number}")
    array = onnx.numpy_helper.from_array(np.asarray(number, np.int64), f"axis{number}")
    stated = helper.make_node("Constant", [], [f"axis{number}"], value=array)
    hidden = [
        helper.make_node("Shape", [f"done{number}"], [f"shape{number}"]),
        helper.make_node("Mul", [f"shape{number}", "one"], [f"hidden{number}"]),
        helper.make_node("Reshape", [f"done{number}", f"hidden{number}"], [f"found{number}"]),
    ]
    return stated, done, hidden
