"""The same model in float64, for onnx's own evaluator: the judge where two float32 results differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, TensorProto, helper, numpy_helper

from graphopt.fuzzing.building import prune
from graphopt.verify.runners import CannotLoadError, ReferenceRunner, RunError
from graphopt.verify.source import Source
from graphopt.verify.values import Array

_TYPES = frozenset({"to", "dtype", "output_dtype", "softmax_precision", "stash_type"})
"""Attributes that name an element type."""

_STASHING = frozenset({"GroupNormalization", "LayerNormalization", "RMSNormalization"})
"""Operators that compute in float32 by default."""


def in_doubles(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every float32 is float64; integers and other float types stay."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    for function in wide.functions:
        _widen_nodes(function)
    return wide


def outputs_in_doubles(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Any] | None:
    """The outputs of a model whose float32 numbers are computed in float64.

    Returns:
        The outputs, with None for those that the evaluator cannot compute; None if it can compute none.
    """
    wide, count = in_doubles(model), len(model.graph.output)
    found: Sequence[Any] | None = _run(wide, feed)
    if found is None and count > 1:
        found = [(_run(_alone(wide, at), feed) or [None])[0] for at in range(count)]
    return None if found is None or all(each is None for each in found) else list(found)


def _run(wide: onnx.ModelProto, feed: dict[str, Array]) -> list[Any] | None:
    names = {info.name for info in wide.graph.input}
    given = {name: array for name, array in feed.items() if name in names}
    doubles = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in given.items()}
    try:
        return ReferenceRunner(Source(wide, "in doubles")).run(doubles)
    except (CannotLoadError, RunError):
        return None


def _alone(model: onnx.ModelProto, at: int) -> onnx.ModelProto:
    """The part of a model that computes one output."""
    part = onnx.ModelProto.FromString(model.SerializeToString())
    output = part.graph.output[at]
    del part.graph.output[:]
    part.graph.output.append(output)
    prune(part.graph)
    return part


def narrowed(output: Any) -> Any:
    """An output rounded from float64 to float32; any other as it is."""
    if isinstance(output, list):
        return [narrowed(each) for each in output]
    with np.errstate(over="ignore"):
        return output.astype(np.float32) if getattr(output, "dtype", None) == np.float64 else output


def _widen_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _widen_type(info.type)
    _widen_nodes(graph)


def _widen_nodes(body: GraphProto | onnx.FunctionProto) -> None:
    for node in body.node:
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
            elif attribute.HasField("t"):
                _widen_tensor(attribute.t)
            elif attribute.HasField("g"):
                _widen_graph(attribute.g)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                _widen_constant(attribute)
        if node.op_type in _STASHING and not any(attribute.name == "stash_type" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("stash_type", TensorProto.DOUBLE))
        if node.op_type == "ConstantOfShape" and not node.attribute:
            zero = helper.make_tensor("value", TensorProto.DOUBLE, [1], [0.0])
            node.attribute.append(helper.make_attribute("value", zero))


def _widen_constant(attribute: AttributeProto) -> None:
    number = np.array(attribute.f if attribute.name == "value_float" else attribute.floats, np.float64)
    attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(number)))


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _widen_type(kind: onnx.TypeProto) -> None:
    field = kind.WhichOneof("value")
    if field in ("sequence_type", "optional_type"):
        _widen_type(getattr(kind, field).elem_type)
    elif field == "tensor_type" and kind.tensor_type.elem_type == TensorProto.FLOAT:
        kind.tensor_type.elem_type = TensorProto.DOUBLE
