"""Conversion from and to models of other libraries: `onnx_ir.Model`, and the `ONNXProgram` of `torch.onnx.export`.

Neither library is imported to recognize them. The arrays of large weights are shared with the given model, in both
directions, without serialization.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import onnx

from graphopt.errors import ModelError
from graphopt.ir.external import KEY, Opaque, beside_initializers, bring_in
from graphopt.ir.flush import stored, without_initializers
from graphopt.ir.load import build
from graphopt.ir.model import IrModel, Model, Program
from graphopt.ir.types import element_bits
from graphopt.system.extras import require

_LARGE = 1 << 12
"""Weights of at least this many bytes are shared; smaller ones are copied."""


def is_ir_model(source: object) -> TypeGuard[IrModel]:
    """Whether an object is a model of onnx-ir."""
    return "onnx_ir" in sys.modules and isinstance(source, sys.modules["onnx_ir"].Model)


def is_program(source: object) -> TypeGuard[Program]:
    """Whether an object is an exported program of torch."""
    return type(source).__name__ == "ONNXProgram" and is_ir_model(getattr(source, "model", None))


def as_ir_model(source: object) -> IrModel | None:
    """The given model of onnx-ir, or that of an exported program; None for any other object."""
    if is_program(source):
        return source.model  # type: ignore[no-any-return]  # torch is not imported
    return source if is_ir_model(source) else None


def to_proto(source: IrModel) -> onnx.ModelProto:
    """The model as a proto with its weights: a reference would be relative to a folder that the proto does not know.

    Raises:
        ModelError: a file of weights cannot be read.
    """
    proto: onnx.ModelProto = require("onnx_ir").to_proto(source)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            with _told(tensor.name):
                tensor.raw_data = source.graph.initializers[tensor.name].const_value.tobytes()
    _bring_in(proto, source)
    return proto


def read(source: IrModel, opaque: Opaque | None = None) -> Model:
    """The view over a model of onnx-ir, which shares its large weights.

    Args:
        source: the model.
        opaque: which weights in files stay references, unread.

    Raises:
        ModelError: it is not a valid model, or a file of weights cannot be read.
    """
    held = {
        name: value.const_value
        for name, value in source.graph.initializers.items()
        if value.const_value is not None
        and (_is_file(value.const_value) or _is_large(value.const_value))
        and not _stays_opaque(value.const_value, opaque)
    }
    with _set_aside(source, held):
        proto = require("onnx_ir").to_proto(source)
    _bring_in(proto, source, opaque)
    contents: dict[int, np.ndarray[Any, Any]] = {}
    for number, tensor in enumerate(proto.graph.initializer):
        if tensor.name in held:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            contents[number] = _array(held[tensor.name])
    view = build(proto, (), contents, opaque)
    view.graph.changed = bool(contents)  # the proto lacks their data
    return view


def _bring_in(proto: onnx.ModelProto, source: IrModel, opaque: Opaque | None = None) -> None:
    """Read the external data of subgraphs and attributes, as for a model from a file."""
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in beside_initializers(proto)):
        folders = tuple(dict.fromkeys(Path(each.base_dir) for each in _held_by_nodes(source) if _is_file(each)))
        bring_in(proto, KEY, folders, opaque)


def _held_by_nodes(source: IrModel) -> Iterator[Any]:
    """The tensors of a model that are attributes, or initializers of subgraphs."""
    ir = require("onnx_ir")
    for top in (source.graph, *source.functions.values()):
        for node in ir.traversal.RecursiveGraphIterator(top):
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    yield attribute.value
                elif attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                    yield from (value.const_value for value in attribute.value.initializers.values())


def write(view: Model, like: object) -> Any:
    """A model of onnx-ir that shares the view's large weights.

    Args:
        view: the model.
        like: the source of the model; if that is a program, the result is a copy of the program with the new model.
    """
    ir = require("onnx_ir")
    weights = {
        v.name: v.tensor
        for v in stored(view.graph)
        if v.tensor is not None
        and not v.tensor.is_opaque
        and v.tensor.nbytes >= _LARGE
        and element_bits(v.tensor.dtype) is not None
    }
    proto = without_initializers(view, set(weights))
    for name, tensor in weights.items():
        stub = tensor.header(name)
        stub.data_location = onnx.TensorProto.EXTERNAL
        stub.external_data.add(key="location", value=name)
        proto.graph.initializer.append(stub)
    model = ir.from_proto(proto)
    given = as_ir_model(like)
    references = given.graph.initializers if given is not None and view.opaque is not None else {}
    for value in view.graph.initializers:
        if value.tensor is not None and value.tensor.is_opaque and value.name in references:
            # only the original reference knows its folder
            model.graph.initializers[value.name].const_value = references[value.name].const_value
    for name, tensor in weights.items():
        value = model.graph.initializers[name]
        settings = {"dtype": ir.DataType(tensor.dtype), "shape": ir.Shape(tensor.dims), **_beside(value.const_value)}
        value.const_value = ir.Tensor(tensor.array(), name=name, **settings)
    if not is_program(like):
        return model
    program = copy.copy(like)
    program.model = model
    return program


def _beside(tensor: Any) -> dict[str, Any]:
    """Doc string and metadata of a tensor, as arguments of onnx-ir's tensor classes."""
    return {"doc_string": tensor.doc_string, "metadata_props": dict(tensor.metadata_props)}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """A read-only view of a tensor's data."""
    with _told(tensor.name):
        array: np.ndarray[Any, Any] = tensor.numpy().view()
    array.flags.writeable = False
    return array


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Name the tensor in errors: onnx-ir opens files late, and refuses links that lead out of their folder."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ModelError(f"tensor {name!r}: onnx-ir cannot read its data: {error}") from error


def _is_file(tensor: Any) -> bool:
    return type(tensor).__name__ == "ExternalTensor"


def _stays_opaque(tensor: Any, opaque: Opaque | None) -> bool:
    return opaque is not None and _is_file(tensor) and (opaque == "all" or not os.path.isfile(tensor.path))


def _is_large(tensor: Any) -> bool:
    # Strings have no array to share; elements of less than a byte are packed in one library and not in the other.
    return bool(tensor.nbytes >= _LARGE and (element_bits(int(tensor.dtype)) or 0) >= 8)


@contextmanager
def _set_aside(model: IrModel, held: dict[str, Any]) -> Iterator[None]:
    """Replace some weights of the model with references while it is serialized."""
    ir = require("onnx_ir")
    try:
        for name, tensor in held.items():
            model.graph.initializers[name].const_value = ir.ExternalTensor(
                name, 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name, **_beside(tensor)
            )
        yield
    finally:
        for name, tensor in held.items():
            model.graph.initializers[name].const_value = tensor
