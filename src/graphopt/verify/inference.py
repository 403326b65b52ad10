"""Inferred shapes of a model's values: for choosing inputs, and for refusing models that exceed the memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import onnx

from graphopt.ir.messages import as_text
from graphopt.ir.schema import READING_TYPES
from graphopt.ir.types import tensor_nbytes
from graphopt.system.extras import require
from graphopt.verify.source import all_nodes, skeleton

Shapes = dict[str, tuple[int | str | None, ...]]

_LONG = 1 << 16
"""No vector that holds a shape is as long; propagating the data of longer ones costs 150 bytes per element."""


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with types of its values from the standard's inference, and without its weights.

    Shapes are inferred first; only if all vectors are short is their data propagated, too.
    """
    light = skeleton(model)
    try:
        lengths = inferred(light)
        return lengths if _has_long(lengths) else inferred(light, data_prop=True)
    except Exception:  # inference is optional: it fails on some unusual models
        return light


def inferred(light: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """What the standard's inference makes of a model.

    Operators whose inference ends the process if their operand has no type are hidden from it until that type is known.

    Args:
        light: the model, without weights.
        data_prop: whether to follow the contents of small integer tensors.

    Raises:
        Exception: inference fails, with one of several unrelated types.
    """
    if READING_TYPES.isdisjoint(map(_full_name, _every_node(light))):
        return onnx.shape_inference.infer_shapes(light, data_prop=data_prop)
    while True:
        result = onnx.shape_inference.infer_shapes(_without_untyped(light), data_prop=data_prop)
        del result.opset_import[-1]
        hidden = [node for node in _every_node(result) if node.domain == _HIDDEN]
        for node in hidden:
            node.domain, _, node.op_type = node.op_type.rpartition("::")
        if _typed(result).isdisjoint(name for node in hidden for name in node.input[:1]):
            return result
        light = result


def _without_untyped(light: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which operators that read types stand under another name if their operand has none."""
    copy = onnx.ModelProto.FromString(light.SerializeToString())
    known = _typed(copy)
    for node in _every_node(copy):
        if _full_name(node) in READING_TYPES and known.isdisjoint(node.input[:1]):
            node.op_type, node.domain = _full_name(node), _HIDDEN
    copy.opset_import.add(domain=_HIDDEN, version=1)
    return copy


_HIDDEN = "graphopt.hidden"


def _full_name(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _every_node(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from all_nodes(model.graph.node)
    for function in model.functions:
        yield from all_nodes(function.node)


def _typed(model: onnx.ModelProto) -> set[str]:
    """The values of the main graph of known type; bodies may use the same names otherwise."""
    graph = model.graph
    known = {info.name for info in _infos(graph) if info.type.tensor_type.elem_type or info.type.HasField("map_type")}
    inner = {name for node in _every_node(model) for name in node.output} - {n for m in graph.node for n in m.output}
    return (known | {tensor.name for tensor in graph.initializer}) - inner


def shapes_of(light: onnx.ModelProto) -> Shapes:
    """The shapes that an inferred model states."""
    found: Shapes = {t.name: tuple(t.dims) for t in light.graph.initializer}
    for value in _infos(light.graph):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            dims = (d.dim_value if d.HasField("dim_value") else as_text(d.dim_param) or None for d in tensor.shape.dim)
            found[value.name] = tuple(dims)
    return found


_SURELY_FITS = 1 << 24
"""Bytes of a value that surely fit into memory: querying the memory takes longer than running a small model."""


def too_large(model: onnx.ModelProto, inferred: onnx.ModelProto | None = None) -> str | None:
    """Why a model cannot run on this machine, from its sizes alone; None if they give no reason.

    Args:
        model: the model, at least its skeleton.
        inferred: the result of `infer`, if it is known already.
    """
    for node in model.graph.node:
        stated = next((a.i for a in node.attribute if a.name == "num_outputs" and a.type == a.INT), 0)
        if node.op_type == "Split" and stated > max(len(node.output), 1):
            return f"node {node.name!r} states {stated} outputs and has {len(node.output)}"
    for value in _infos((inferred or infer(model)).graph):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            continue
        count = math.prod(d.dim_value if d.HasField("dim_value") else 1 for d in tensor.shape.dim)
        size = tensor_nbytes(tensor.elem_type, count) or 0
        if size > _SURELY_FITS and size > (available := require("psutil").virtual_memory().available):
            return f"value {value.name!r} alone needs {size} bytes, {available} are available"
    return None


def _infos(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    return itertools.chain(graph.value_info, graph.output, graph.input)


def _has_long(model: onnx.ModelProto) -> bool:
    for value in _infos(model.graph):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > _LONG:
            return True
    return False
