"""Models as other libraries hold them: `onnx_ir.Model`, and what `torch.onnx.export` returns.

Both are known by what they look like, so that neither library is needed. The arrays of large weights are shared with
the model that they came from, in both directions: they pass through no bytes.
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
"""Weights of so many bytes and more are shared; smaller ones are copied."""


def is_ir_model(source: object) -> TypeGuard[IrModel]:
    """Whether this is a model of onnx-ir."""
    return "onnx_ir" in sys.modules and isinstance(source, sys.modules["onnx_ir"].Model)


def is_program(source: object) -> TypeGuard[Program]:
    """Whether this is an exported program of torch."""
    return type(source).__name__ == "ONNXProgram" and is_ir_model(getattr(source, "model", None))


def as_ir_model(source: object) -> IrModel | None:
    """The model of onnx-ir that this is or holds, None when it is something else."""
    if is_program(source):
        return source.model  # type: ignore[no-any-return]  # torch is not imported
    return source if is_ir_model(source) else None


def to_proto(source: IrModel) -> onnx.ModelProto:
    """The model as a proto, weights included: references would be to a folder that the proto does not know.

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
    """The view over a model of onnx-ir, whose large weights stay where they are.

    Args:
        source: the model.
        opaque: which weights that are in files stay references, unread.

    Raises:
        ModelError: it is no model, or the file of weights cannot be read.
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
    view.graph.changed = bool(contents)  # the proto is not the whole model
    return view


def _bring_in(proto: onnx.ModelProto, source: IrModel, opaque: Opaque | None = None) -> None:
    """Read the data of bodies and attributes that is in files, as of a model that is a file itself."""
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in beside_initializers(proto)):
        folders = tuple(dict.fromkeys(Path(each.base_dir) for each in _held_by_nodes(source) if _is_file(each)))
        bring_in(proto, KEY, folders, opaque)


def _held_by_nodes(source: IrModel) -> Iterator[Any]:
    """The tensors of a model that are attributes, or initializers of bodies."""
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
        like: what it was read from: where that was a program, a copy of the program holds the model.
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
            # the given reference knows its folder
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
    """What a tensor states beside its data, as makers of tensors take it."""
    return {"doc_string": tensor.doc_string, "metadata_props": dict(tensor.metadata_props)}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """A view of what a tensor holds."""
    with _told(tensor.name):
        array: np.ndarray[Any, Any] = tensor.numpy().view()
    array.flags.writeable = False
    return array


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say which tensor it was: onnx-ir opens files only now, and none to which a link leads out of their folder."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ModelError(f"tensor {name!r}: onnx-ir cannot read its data: {error}") from error


def _is_file(tensor: Any) -> bool:
    return type(tensor).__name__ == "ExternalTensor"


def _stays_opaque(tensor: Any, opaque: Opaque | None) -> bool:
    return opaque is not None and _is_file(tensor) and (opaque == "all" or not os.path.isfile(tensor.path))


def _is_large(tensor: Any) -> bool:
    # Strings have no array to share, and those of less than a byte are packed in one library and not in the other.
    return bool(tensor.nbytes >= _LARGE and (element_bits(int(tensor.dtype)) or 0) >= 8)


@contextmanager
def _set_aside(model: IrModel, held: dict[str, Any]) -> Iterator[None]:
    """Let the model have references in place of some of its weights, while it is written."""
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
