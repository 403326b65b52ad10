"""Perturbation of a model's inputs, constants and intermediate values in their last bits.

The resulting changes of the original's outputs are the error that must be tolerated in any evaluation: a rewrite that
rounds a folded weight, or adds in another order, causes no larger one. This is Monte Carlo arithmetic, with a few
runs instead of many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import onnx

from graphopt.verify.exactness import MOVING, is_simple, read_exactly, unrounded
from graphopt.verify.inference import inferred
from graphopt.verify.inputs import Feed
from graphopt.verify.roles import ROLES, masks_of
from graphopt.verify.source import all_nodes, read_by, skeleton
from graphopt.verify.values import Array, is_float, limits, numpy_dtype

_Body = onnx.GraphProto | onnx.FunctionProto
_ULPS = 2.0
_SUFFIX = ".graphopt_unscaled"
_SHAPING = frozenset({("Resize", 1), ("Resize", 2), ("Upsample", 1)})
"""Floats that determine a shape: no kernel computes a scale of 1 that is changed in its last bit."""
_EXPONENT = ("Pow", 1)
"""With an exponent of 2 changed in its last bit, negative bases give NaN, and any result would be tolerated there."""
_COARSE = {"Sigmoid": 2.0**-24}
"""The absolute error of the runtime's float32 kernel, in both directions but not below zero, for all results: it
exceeds the smallest results."""
_COARSELY = 2 / 3
"""The probability that a result is changed by this error."""
_QUANTIZING = ("DynamicQuantize", "QAttention", "QGemm", "QLinear", "QuantizeLinear")
"""Prefixes of operators with quantized results."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


_COMPARING = frozenset(
    {"ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "MaxPool",
     "NonMaxSuppression", "TopK", "Unique"}
)  # fmt: skip


def compares(model: onnx.ModelProto) -> bool:
    """Whether a model may compare floats that depend on its inputs, for order or equality.

    Comparisons of integers and sizes do not count: they depend on no float.
    """
    whole = {name for name, dtype in _types(model).items() if dtype.kind in "biu"}
    computed = {value.name for value in model.graph.input}
    for node in model.graph.node:
        read = computed.intersection(read_by(node))
        if read - whole and _may_compare(node):
            return True
        if read and node.op_type not in ("Shape", "Size"):
            computed.update(node.output)
    return bool(model.functions)


def _may_compare(node: onnx.NodeProto) -> bool:
    """Whether a node, or a node in its subgraphs, may compare its operands."""
    if node.domain not in ("", "ai.onnx", "com.microsoft") or node.op_type in _COMPARING:
        return True
    inner = (each for attribute in node.attribute for each in all_nodes(attribute.g.node))
    return any(each.op_type in _COMPARING or each.domain for each in inner)


def decided_by(model: onnx.ModelProto) -> set[str]:
    """The inputs whose whole numbers must not change, see `read_exactly`, including masks of 0 and 1."""
    return read_exactly(model.graph, float_types(model)) | masks_of(model)


def rounds_to_steps(model: onnx.ModelProto) -> bool:
    """Whether a model quantizes intermediate values: then a last bit may change a result by a whole step."""
    bodies: tuple[_Body, ...] = (*_graphs(model), *model.functions)
    return any(node.op_type.startswith(_QUANTIZING) for body in bodies for node in body.node)


def jittered(feed: Feed, number: int, *, apart: bool = False, exact: Collection[str] | None = None) -> Feed | None:
    """Change every float that is not exact by a few ulps up or down; None if the feed contains no float.

    Equal values stay equal, so that ties stay ties: a result that breaks them differently is wrong.

    Args:
        feed: the inputs.
        number: the number of the variant.
        exact: the inputs whose whole numbers stay; all inputs if None.
        apart: change equal values differently, for models that do not compare them: otherwise the rounding of sums in
            which equal values cancel would not be measured.
    """
    changed = {
        name: _change(value, number, apart=apart, whole=exact is not None and name not in exact)
        for name, value in feed.items()
    }
    return changed if any(changed[n] is not feed[n] for n in feed) else None


def jittered_model(model: onnx.ModelProto, number: int) -> onnx.ModelProto:
    """A copy whose floating-point constants and intermediate values are changed by a few ulps."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    bodies: tuple[_Body, ...] = (*_graphs(copy), *copy.functions)
    fixed = {name for body in bodies for name in (*_deciding_shapes(body), *_exponents(body, copy.functions))}
    for graph in _graphs(copy):
        for tensor in graph.initializer:
            if tensor.name not in fixed:
                _move_tensor(tensor, number)
        _move_constants((node for node in graph.node if fixed.isdisjoint(node.output)), number)
    for function in copy.functions:
        _move_constants((node for node in function.node if fixed.isdisjoint(node.output)), number)
    _scale_intermediates(copy, number, fixed)
    return copy


def without_negative_zeros(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which constants and results of nodes of the main graph have +0.0 instead of -0.0."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    types, kept = float_types(copy), []
    for tensor in copy.graph.initializer:
        if numpy_dtype(tensor.data_type) in (np.float32, np.float64, np.float16):
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) + 0, tensor.name))
    for node in copy.graph.node:
        same = onnx.NodeProto.FromString(node.SerializeToString())
        kept.append(same)
        for i, name in enumerate(node.output):
            if name in types:
                zero = onnx.numpy_helper.from_array(np.zeros((), types[name]), f"{name}{_SUFFIX}.zero")
                copy.graph.initializer.append(zero)
                same.output[i] = f"{name}{_SUFFIX}"
                kept.append(onnx.helper.make_node("Add", [f"{name}{_SUFFIX}", zero.name], [name]))
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return copy


def _exponents(body: _Body, functions: Iterable[onnx.FunctionProto]) -> Iterator[str]:
    """Names of the exponents, and of the values that they are moved from unchanged."""
    producers = {name: node for node in body.node for name in node.output}
    called = {(function.domain, function.name): function for function in functions}
    for node in body.node:
        for slot, name in enumerate(node.input):
            function = called.get((node.domain, node.op_type))
            if (node.op_type, slot) == _EXPONENT or (function is not None and _is_exponent(function, slot)):
                yield name
                while (producer := producers.get(name)) is not None and producer.op_type in MOVING:
                    yield (name := producer.input[0])


def _is_exponent(function: onnx.FunctionProto, slot: int) -> bool:
    """Whether an input of a function is an exponent in its body; nested calls are not followed."""
    return slot < len(function.input) and function.input[slot] in _exponents(function, ())


def _deciding_shapes(graph: _Body) -> set[str]:
    """Names of the values that determine a shape, and of those that they are computed from."""
    producers = {name: node for node in graph.node for name in node.output}
    waiting = [n.input[slot] for n in graph.node for slot in range(len(n.input)) if (n.op_type, slot) in _SHAPING]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name and name not in found:
            found.add(name)
            producer = producers.get(name)
            if producer is not None and producer.op_type not in {"Shape", "Size"}:
                waiting.extend(producer.input)
    return found


def _scale_intermediates(model: onnx.ModelProto, number: int, fixed: set[str]) -> None:
    """Multiply the results of each node of the main graph by one plus or minus an ulp.

    A whole tensor has one factor, so that equal elements stay equal.
    """
    types = float_types(model)
    used = {n.input[slot] for n in model.graph.node for slot in range(len(n.input)) if (n.op_type, slot) in ROLES}
    exact, largest = unrounded(model.graph, fixed | used | masks_of(model), types)
    rng = np.random.default_rng(number)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes.append(node)
        if node.op_type == "Constant":
            continue
        for i, name in enumerate(node.output):
            if name not in types or name in exact:
                continue
            dtype = types[name]
            up = 0.0 if name in largest else 1.0  # the lowest number of a mask must not become an infinity
            factor = 1.0 + limits(dtype).eps * (up if rng.random() < 0.5 else -1.0)
            scale = onnx.numpy_helper.from_array(np.array(factor, np.float64).astype(dtype), f"{name}{_SUFFIX}.scale")
            model.graph.initializer.append(scale)
            given = node.output[i] = f"{name}{_SUFFIX}"
            if (step := _COARSE.get(node.op_type)) and dtype == np.float32 and rng.random() < _COARSELY:
                # Before it is scaled: a difference of two results of the kernel is a multiple of the step, or zero.
                off = np.array(step if rng.random() < 0.5 else -step, np.float32)
                model.graph.initializer.append(onnx.numpy_helper.from_array(off, f"{given}.step"))
                nodes.append(onnx.helper.make_node("Add", [given, f"{given}.step"], [f"{given}.moved"]))
                nodes.append(onnx.helper.make_node("Relu", [f"{given}.moved"], [given := f"{given}.bounded"]))
            nodes.append(onnx.helper.make_node("Mul", [given, scale.name], [name]))
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def float_types(model: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """The values of the main graph that are float tensors, as far as inference can tell."""
    given = {value.name for value in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
    types = _types(model).items()
    return {name: dtype for name, dtype in types if name not in given and is_float(dtype) and dtype.itemsize > 1}


def _types(model: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """The element types of tensors of the main graph, as far as inference can tell."""
    light = skeleton(model)
    try:
        light = inferred(light)
    except Exception:  # inference is optional: it fails on some unusual models
        return {}
    graph = light.graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            kinds[value.name] = value.type.tensor_type.elem_type
    return {name: dtype for name, kind in kinds.items() if (dtype := numpy_dtype(kind)) is not None}


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting.extend(a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)


def _move_constants(nodes: Iterable[onnx.NodeProto], number: int) -> None:
    for node in nodes:
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _move_tensor(attribute.t, number)
            elif attribute.type == onnx.AttributeProto.FLOAT:
                attribute.f = float(_move(np.array(attribute.f, np.float32), number))
            elif attribute.type == onnx.AttributeProto.FLOATS:
                attribute.floats[:] = _move(np.array(attribute.floats, np.float32), number).tolist()


def _move_tensor(tensor: onnx.TensorProto, number: int) -> None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except (TypeError, ValueError):  # a type without an array form contains no floats to change
        return
    moved = _change(array, number)
    if moved is not array:
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))


def _change(value: Any, number: int, *, apart: bool = False, whole: bool = False) -> Any:
    if isinstance(value, list):
        moved = [_change(item, number, apart=apart, whole=whole) for item in value]
        return moved if any(a is not b for a, b in zip(moved, value, strict=True)) else value
    if not isinstance(value, np.ndarray) or not is_float(value.dtype) or value.dtype.itemsize < 2:
        return value
    return _move(value, number, apart=apart, whole=whole)


def _move(array: Array, number: int, *, apart: bool = False, whole: bool = False) -> Array:
    """Change numbers by a few ulps, those that are simple only if `whole` is set."""
    wide = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mixed = np.ascontiguousarray(wide).reshape(-1).view(np.uint64) * _MIX
        if apart:
            mixed += np.arange(1, mixed.size + 1, dtype=np.uint64) * (_MIX << np.uint64(1))
        mixed = (mixed ^ (mixed >> np.uint64(29))) * (_MIX + np.uint64(2 * number + 2))
        sign = np.where((mixed >> np.uint64(40)) & np.uint64(1), 1.0, -1.0).reshape(array.shape)
        # Equal values must change by different amounts, or they might cancel in sums whose rounding is to be measured.
        share = np.where((mixed >> np.uint64(41)) & np.uint64(1), 1.0, 0.5).reshape(array.shape) if apart else 1.0
        step = _ULPS * limits(array.dtype).eps * sign * share
        top = limits(array.dtype).top  # the lowest number, as in masks, must not become an infinity
        kept = ~np.isfinite(wide) | (is_simple(wide, array.dtype) & (not whole))
        moved = np.where(kept, wide, np.clip(wide * (1.0 + step), -top, top))
        return np.asarray(moved.astype(array.dtype))
