"""Control flow: `Scan` as `Loop`, `Scan` over batches, and branches of `If`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphopt.analysis.overridable import CallersChoice
from graphopt.errors import Decline
from graphopt.ir import Node, Value, captured_values
from graphopt.ir.flush import emit
from graphopt.opsets import automatic
from graphopt.opsets.bodies import called
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import function_of, integers
from graphopt.opsets.meanings.positions import Counting
from graphopt.opsets.meanings.registry import Step, down, up
from graphopt.rewrite import Rewriter


@down(16, "Scan")
def without_stated_shapes(node: Node, change: Change, rw: Rewriter) -> Step:
    """Replace a `Scan` whose body outputs lack shapes, which runtimes require but may not infer in older operators."""
    body = next(onnx.helper.get_attribute_value(a) for a in emit(node).attribute if a.name == "body")
    if all(value.type.tensor_type.HasField("shape") for value in body.output):
        return automatic.down(node, change, rw)
    as_loop(node, change, rw)
    return None


@down(9, "Scan")
def as_loop(node: Node, change: Change, rw: Rewriter) -> None:
    """Replace `Scan` with `Loop`: each step gathers its scan inputs; scan outputs are reversed or transposed after."""
    count = node.attr("num_scan_inputs")
    states = len(node.inputs) - count
    if not states:
        raise Decline("a Loop without carried values requires opset 13")
    operands = [node.operand(index) for index in range(len(node.inputs))]
    op, results = Counting(rw), len(node.outputs) - states
    backward = node.attr("scan_input_directions") or (0,) * count
    axes = [x.axis(a) for x, a in zip(operands[states:], node.attr("scan_input_axes") or (0,) * count, strict=True)]
    steps = op.size(operands[states], axes[0])
    proto = emit(node)
    body = next(onnx.helper.get_attribute_value(a) for a in proto.attribute if a.name == "body")
    captured, it = _captured(node), _in_no_name(proto)
    names = [f"operand {index}{it}" for index in range(len(operands))]  # the body may use an operand's own name
    made = _body(body, names[states : states + count], axes, tuple(backward), it)
    results_named = [f"result {index}{it}" for index in range(len(node.outputs))]
    loop = helper.make_node("Loop", [f"steps{it}", f"on{it}", *names[:states]], results_named, body=made)
    inputs = [f"steps{it}", f"on{it}", f"last{it}", *names, *(value.name for value in captured)]
    function = function_of(inputs, list(loop.output), [loop], rw.graph.opset())
    number = rw.op("Reshape", steps, integers())
    found = called(rw, function, number, _true(rw), op("Sub", number, 1), *operands, *captured)
    backwards = node.attr("scan_output_directions") or (0,) * results
    places = node.attr("scan_output_axes") or (0,) * results
    for index, (reverse, axis) in enumerate(zip(backwards, places, strict=True), states):
        value = found[index]
        if reverse:
            value = rw.op("Gather", value, op("Sub", op("Sub", steps, 1), op.up_to(steps)), axis=0)
        found[index] = rw.op("Transpose", value, perm=_stacked_at(axis, node.outputs[index])) if axis else value
    rw.replace(node, [value if not value.name else rw.op("Identity", value) for value in found])


def _true(rw: Rewriter) -> Value:
    return rw.constant(np.asarray(True))


def _stacked_at(axis: int, result: Value | None) -> list[int]:
    """The permutation that moves the first axis of a result to `axis`."""
    rank = 0 if result is None else len(result.dims())
    place = axis + rank if axis < 0 else axis
    return [0 if each == place else each + 1 if each < place else each for each in range(rank)]


def _in_no_name(proto: onnx.NodeProto) -> str:
    """A suffix that makes any name unique, since it occurs nowhere in the node or its subgraphs."""
    known, ending = proto.SerializeToString(), " of it"
    while ending.encode() in known:
        ending += "s"
    return ending


def _body(
    body: onnx.GraphProto, scanned: list[str], axes: list[int], backward: tuple[int, ...], it: str
) -> onnx.GraphProto:  # fmt: skip
    """The body of a `Loop` that is equivalent to the body of a `Scan`."""
    made = onnx.GraphProto()
    made.CopyFrom(body)
    states = len(body.input) - len(scanned)
    del made.input[:], made.node[:], made.output[:]
    going_on = helper.make_tensor_value_info(f"going on{it}", TensorProto.BOOL, [])
    still = helper.make_tensor_value_info(f"still going on{it}", TensorProto.BOOL, [])
    step = helper.make_tensor_value_info(f"step{it}", TensorProto.INT64, [])
    made.input.extend([step, going_on, *body.input[:states]])
    made.node.append(helper.make_node("Identity", [going_on.name], [still.name]))
    made.node.append(helper.make_node("Sub", [f"last{it}", step.name], [f"step from behind{it}"]))
    for value, name, axis, turned in zip(body.input[states:], scanned, axes, backward, strict=True):
        place = f"step from behind{it}" if turned else step.name
        made.node.append(helper.make_node("Gather", [name, place], [value.name], axis=axis))
    made.node.extend(body.node)
    made.output.extend([still, *body.output])
    return made


@up(9, "Scan")
def over_batches(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Nest the `Scan` in a `Scan` over the batch: until opset 8 it runs over each sequence of a batch separately."""
    if node.input(0) is not None:
        raise Decline("sequence_lens was removed in opset 9")
    directions, count = node.attrs.get("directions"), node.attr("num_scan_inputs")
    yield
    yield  # the body is copied once its nodes are written
    proto = emit(node)
    body = next(onnx.helper.get_attribute_value(a) for a in proto.attribute if a.name == "body")
    operands = [node.operand(index) for index in range(1, len(node.inputs))]
    captured, it = _captured(node), _in_no_name(proto)
    names = [f"operand {index}{it}" for index in range(len(operands))]
    of_one = [f"operand {index} of one{it}" for index in range(len(operands))]
    found = [f"result {index} of one{it}" for index in range(len(node.outputs))]
    settings: dict[str, Any] = {} if directions is None else {"scan_input_directions": list(directions)}
    inner = helper.make_node("Scan", of_one, found, body=body, num_scan_inputs=count, **settings)
    inputs, outputs = ([_of_no_type(value, name) for value, name in zip(values, known, strict=True)]
                       for values, known in ((operands, of_one), (node.outputs, found)))  # fmt: skip
    batch = helper.make_graph([inner], "batch", inputs, outputs)
    results = [f"result {index}{it}" for index in range(len(node.outputs))]
    scan = helper.make_node("Scan", names, results, body=batch, num_scan_inputs=len(names))
    inputs_named = [*names, *(value.name for value in captured)]
    made = called(rw, function_of(inputs_named, results, [scan], rw.graph.opset()), *operands, *captured)
    rw.replace(node, made)


def _captured(node: Node) -> list[Value]:
    """The outer values that the body of a node captures, all of them named."""
    captured = list(dict.fromkeys(captured_values(node)))
    if any(not value.name for value in captured):
        raise Decline("at opset 8 Scan takes batches, and a captured value has no name")
    return captured


def _of_no_type(value: Value | None, name: str) -> onnx.ValueInfoProto:
    """Type information of a value for one element of a batch: the element type, and the rank if known."""
    if value is None or value.dtype is None:
        raise Decline("the element type of an operand is not known")
    rank = None if value.rank is None else [None] * (value.rank - 1)
    return helper.make_tensor_value_info(name, value.dtype, rank)


@down(11, "If")
def of_one_shape(node: Node, change: Change, rw: Rewriter) -> Step:
    """Decline branches with different shapes, which are allowed from opset 11 on only."""
    one, other = (node.subgraphs[name].outputs for name in ("then_branch", "else_branch"))
    chosen: set[Value] | None = None
    for first, second in zip(one, other, strict=True):
        if not first.has_shape_of(second):
            chosen = CallersChoice(rw.model).sizes if chosen is None else chosen
            if first in chosen or second in chosen:
                raise Decline("branches whose sizes the caller may override require opset 11")
        if first.shape is None or second.shape is None:
            continue
        if len(first.shape) != len(second.shape):
            raise Decline("branches of different ranks require opset 11")
        pairs = zip(first.shape, second.shape, strict=True)
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            raise Decline("branches of different shapes require opset 11")
    return automatic.down(node, change, rw)
