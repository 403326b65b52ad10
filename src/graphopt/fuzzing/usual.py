"""Conditions on which a model's outputs are meaningful, where the runtime deviates from the standard."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.fuzzing.building import evaluate, makeshift, stored, strictly_inferred
from graphopt.fuzzing.variants import graphs_of
from graphopt.verify.runners import CannotLoadError, ReferenceRunner, RunError
from graphopt.verify.source import Source
from graphopt.verify.values import Array


def is_usual(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether the runtime follows the standard, as far as its deviations in single operators are known."""
    asked = (_joins_fit, _sums_something, _gathers_single_strings, _branches_agree, _windows_fit)
    functions = (node for function in model.functions for node in function.node)
    nodes = (node for graph in graphs_of(model.graph) for node in graph.node)
    return not any(map(_is_refused, (*nodes, *functions))) and all(ask(model, feed) for ask in asked)


def _is_refused(node: onnx.NodeProto) -> bool:
    """Whether the runtime refuses a node, except in places where it does not check it.

    Examples: a norm of no groups in a branch that is never taken; a pair of `Cast`, one refused, merged into one.
    """
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "Cast":
        return stated.get("saturate", 1) == 0 and "FLOAT8" not in TensorProto.DataType.Name(stated.get("to", 0))
    return node.op_type == "GroupNormalization" and stated.get("num_groups", 1) <= 0


_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def _windows_fit(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether no image is too small for a pooling window: a blocked kernel divides by the number of output rows."""
    return all(np.size(pooled) or not np.size(image) for image, pooled in _operands_and_results(model, feed, _POOLS))


def _operands_and_results(model: onnx.ModelProto, feed: dict[str, Array], ops: Set[str]) -> list[tuple[Any, Any]]:
    """The first operand and the first result of each node of these operators; none if they cannot be evaluated."""
    nodes = [node for node in model.graph.node if node.op_type in ops]
    names = list(dict.fromkeys(name for node in nodes for name in (node.input[0], node.output[0])))
    held = values_of(model, feed, names) if nodes else None
    return [] if held is None else [(held[node.input[0]], held[node.output[0]]) for node in nodes]


_BRANCHES_MAY_DIFFER = 11


def _branches_agree(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether both branches give equal shapes, as opsets below 11 demand; inference may know less in the original."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    choices = [node for node in model.graph.node if node.op_type == "If"] if opset < _BRANCHES_MAY_DIFFER else []
    for node in choices:
        taken = [_with_choice(model, feed, node, choice) for choice in (True, False)]
        if None in taken or taken[0] != taken[1]:
            return False
    return True


def _with_choice(
    model: onnx.ModelProto, feed: dict[str, Array], choice: onnx.NodeProto, condition: bool
) -> list[tuple[int, ...]] | None:
    """The shapes of the results of one branch; None if it fails."""
    forced = onnx.NodeProto()
    forced.CopyFrom(choice)
    forced.input[0] = "/taken"
    nodes = [forced if node is choice else node for node in model.graph.node]
    given = {tensor.name: tensor for tensor in model.graph.initializer}
    given |= {name: stored(array, name) for name, array in {**feed, "/taken": np.array(condition)}.items()}
    names = [name for name in choice.output if name]
    found = evaluate(makeshift(nodes, list(given.values()), names, model.opset_import, model.functions))
    return None if found is None else [np.shape(array) for array in found]


_INTEGER_PRODUCTS = frozenset({
    "ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QLinearConv",
    "QLinearMatMul",
})  # fmt: skip


def _sums_something(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether no integer product gives elements from an empty operand, which the runtime leaves uninitialized."""
    if _stands_inside(model, _INTEGER_PRODUCTS) and _is_something_empty(model, feed):
        return False
    return all(np.size(x) or not np.size(y) for x, y in _operands_and_results(model, feed, _INTEGER_PRODUCTS))


def _gathers_single_strings(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether no `Gather` picks blocks of several strings, of which the runtime copies only the first."""
    picks = [node for node in model.graph.node if node.op_type == "Gather"]
    types = element_types(model) if picks else {}
    picks = [node for node in picks if types.get(node.input[0], TensorProto.STRING) == TensorProto.STRING]
    held = (values_of(model, feed, list(dict.fromkeys(node.input[0] for node in picks))) if picks else None) or {}
    for node in picks if held else ():
        array, axis = held[node.input[0]], next((a.i for a in node.attribute if a.name == "axis"), 0)
        if array.dtype.kind in "OSU" and np.prod(array.shape[axis:][1:]) > 1:
            return False
    return True


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of values by name, as far as they can be inferred."""
    inferred = strictly_inferred(model) or model
    graph = inferred.graph
    known = {tensor.name: int(tensor.data_type) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.elem_type:
            known[info.name] = info.type.tensor_type.elem_type
    return known


def _joins_fit(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether elements of concatenated sequences match; the runtime skips empty ones, leaving memory uninitialized."""
    joins = [node for node in model.graph.node if node.op_type == "ConcatFromSequence"]
    if _stands_inside(model, {"ConcatFromSequence"}) and (
        _is_something_empty(model, feed) or not _evaluates(model, feed)
    ):
        return False
    held = values_of(model, feed, list(dict.fromkeys(node.input[0] for node in joins))) if joins else None
    if held is None:
        return True
    for node in joins:
        stated = {each.name: each.i for each in node.attribute}
        shapes = [list(np.shape(each)) for each in held[node.input[0]]]
        if not stated.get("new_axis", 0):
            shapes = [[size for at, size in enumerate(s) if at != stated["axis"] % len(s)] for s in shapes if s]
        if any(shape != shapes[0] for shape in shapes):
            return False
    return True


def _stands_inside(model: onnx.ModelProto, ops: Set[str]) -> bool:
    """Whether one of these operators is in a subgraph, where its operands cannot be evaluated."""
    nodes = [node for graph in graphs_of(model.graph) if graph is not model.graph for node in graph.node]
    return any(node.op_type in ops for node in nodes)


def _evaluates(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether onnx's own evaluator runs a model: it never concatenates elements that do not match."""
    try:
        ReferenceRunner(Source(model, "original")).run(feed)
    except (CannotLoadError, RunError):
        return False
    return True


def _is_something_empty(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    return any(0 in a.shape for a in feed.values()) or any(0 in t.dims for t in model.graph.initializer)


_FIRST_PIXELS = 2
"""Axes before those of pixels: images have a batch axis, a channel axis and at least one spatial axis."""


def is_image_of_unknown_size(model: onnx.ModelProto, feed: dict[str, Array], sides: tuple[int, ...] = ()) -> bool:
    """Whether some value is an empty image on a feed, and none of its stated sizes is 0.

    Args:
        model: the model.
        feed: its inputs.
        sides: the spatial sizes of the image in question; one matching image is enough. If they are unknown, this must
            hold for all empty images.
    """
    names = [name for node in model.graph.node for name in node.output if name]
    inferred = (strictly_inferred(model) or model).graph
    held, types = values_of(model, feed, names), {info.name: info.type for info in inferred.value_info}
    types |= {info.name: info.type for info in (*inferred.input, *inferred.output)}
    arrays = {name: value for name, value in {**feed, **(held or {})}.items() if isinstance(value, np.ndarray)}
    found = {name: array.shape[_FIRST_PIXELS:] for name, array in arrays.items()}
    open_ones = [_states_no_zero(types.get(name)) for name, own in found.items() if 0 in own and own == (sides or own)]
    return any(open_ones) if sides else bool(open_ones) and all(open_ones)


def _states_no_zero(stated: onnx.TypeProto | None) -> bool:
    dims = stated.tensor_type.shape.dim if stated is not None else ()
    return not any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in dims)


def values_of(model: onnx.ModelProto, feed: dict[str, Array], names: list[str]) -> dict[str, Any] | None:
    """Values of a model by name; None if they cannot be evaluated."""
    graph, given = model.graph, {name: stored(array, name) for name, array in feed.items()}
    given |= {tensor.name: tensor for tensor in graph.initializer if tensor.name not in feed}
    made = [name for name in names if name not in given]
    nodes = makeshift(graph.node, list(given.values()), made, model.opset_import, model.functions)
    found = evaluate(nodes) if made else []
    if found is None:
        return None
    held = {
        name: feed[name] if name in feed else onnx.numpy_helper.to_array(given[name]) for name in {*names} & {*given}
    }
    return held | dict(zip(made, found, strict=True))
