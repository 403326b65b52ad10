"""Inferred shapes of a model's values: for choosing inputs, and for refusing models that exceed the memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import onnx

from graphopt.ir.types import tensor_nbytes
from graphopt.system.extras import require
from graphopt.verify.source import may_end_inference, skeleton

Shapes = dict[str, tuple[int | str | None, ...]]

_LONG = 1 << 16
"""No vector that holds a shape is as long; propagating the data of longer ones costs 150 bytes per element."""


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with types of its values from the standard's inference, and without its weights.

    Shapes are inferred first; only if all vectors are short is their data propagated, too.
    """
    light = skeleton(model)
    if may_end_inference(light):
        return light
    try:
        lengths = onnx.shape_inference.infer_shapes(light)
        return lengths if _has_long(lengths) else onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:  # inference is optional: it fails on some unusual models
        return light


def shapes_of(light: onnx.ModelProto) -> Shapes:
    """The shapes that an inferred model states."""
    found: Shapes = {t.name: tuple(t.dims) for t in light.graph.initializer}
    for value in _infos(light.graph):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            dims = (d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
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
