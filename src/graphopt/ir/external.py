"""External data: locating a tensor's bytes, and reading those of tensors other than main-graph initializers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

import onnx
from onnx import AttributeProto, SparseTensorProto, TensorProto

from graphopt.errors import ModelError, UsageError, reason_of
from graphopt.ir.contents import check_dims
from graphopt.ir.slices import FileSlice
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import tensor_nbytes

Folders = tuple[Path, ...]
"""Where external data may be: beside the model's path as given, and beside the target of a symbolic link."""

Opaque = Literal["missing", "all"]
"""Which external data is not read, so that its tensors stay references: missing data, or all of it."""

KEY = b"location"
"""A part of every serialized reference to external data."""


def folders_of(path: Path) -> Folders:
    """The folders to look for a model's external data in; follows the symbolic links of a model hub's cache."""
    return tuple(dict.fromkeys((path.absolute().parent, path.resolve().parent)))


def check_opaque(wanted: str | None) -> Opaque | None:
    """The caller's choice of external data that is not read, checked.

    Raises:
        UsageError: it is none of the choices.
    """
    if wanted is not None and wanted not in get_args(Opaque):
        raise UsageError(f"opaque weights: expected {' or '.join(get_args(Opaque))}, found {wanted!r}")
    return wanted  # type: ignore[return-value]  # it was just compared


def tensor_from_proto(proto: TensorProto, folders: Folders, opaque: Opaque | None = None) -> Tensor:
    """The tensor of a proto whose dimensions are checked.

    External data is located, checked to be inside the folders, and not read.

    Raises:
        ModelError: there is no folder to look for external data in, or the data is outside all of them.
    """
    if _stays_opaque(proto, folders, opaque):
        return Tensor(proto.data_type, tuple(proto.dims), proto=proto, is_opaque=True)
    tensor = Tensor(proto.data_type, tuple(proto.dims), proto=proto)
    if proto.data_location == TensorProto.EXTERNAL:
        tensor.source = _slice(proto, tensor, folders)
    return tensor


def _stays_opaque(proto: TensorProto, folders: Folders, opaque: Opaque | None) -> bool:
    if opaque is None or proto.data_location != TensorProto.EXTERNAL:
        return False
    location = place_of(proto)
    return opaque == "all" or not any(_is_file(folder / location) for folder in folders)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no file can have that name
        return False


def place_of(proto: TensorProto) -> str:
    """The location of a tensor's external data, as written in the model; a file's name may be any bytes."""
    return next((os.fsdecode(entry.value) for entry in proto.external_data if entry.key == "location"), "")


def bring_in(model: onnx.ModelProto, data: bytes, folders: Folders, opaque: Opaque | None = None) -> bool:
    """Read the external data of every tensor that is not an initializer of the main graph into the model itself.

    Initializers of the main graph are streamed from file to file; those of subgraphs, and constants in attributes,
    are few and small, so they become part of the model.

    Args:
        model: a model that may be changed in place.
        data: the bytes it was parsed from, for a quick check whether there is any external data.
        folders: where the files are.
        opaque: which data is not read.

    Returns:
        Whether any data was read.

    Raises:
        ModelError: the data cannot be read.
    """
    if KEY not in data:
        return False
    found = False
    for tensor in beside_initializers(model):
        if tensor.data_location == TensorProto.EXTERNAL and not _stays_opaque(tensor, folders, opaque):
            check_dims(tuple(tensor.dims), f"tensor {tensor.name!r}")
            held = tensor_from_proto(tensor, folders)
            held.hold()
            assert held.original is not None
            tensor.CopyFrom(held.original)
            found = True
    return found


def locations(model: onnx.ModelProto) -> set[str]:
    """The locations of all external data of a model, as written in it."""
    return {place_of(tensor) for tensor in external_tensors(model)} - {""}


def external_tensors(model: onnx.ModelProto) -> list[TensorProto]:
    """Every tensor of a model with external data."""
    tensors = (*model.graph.initializer, *beside_initializers(model))
    return [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]


def check_places(model: onnx.ModelProto, folders: Folders) -> None:
    """Refuse external data that is missing or too short.

    Raises:
        ModelError: it is; the message names the tensor and the file.
    """
    for tensor in external_tensors(model):
        check_dims(tuple(tensor.dims), f"tensor {tensor.name!r}")
        tensor_from_proto(tensor, folders)


def beside_initializers(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model except the initializers of the main graph."""
    yield from _in_sparse(model.graph.sparse_initializer)
    yield from _in_nodes(model.graph.node)
    for function in model.functions:
        yield from _in_attributes(function.attribute_proto)
        yield from _in_nodes(function.node)
    for info in model.training_info:
        yield from _in_graph(info.initialization)
        yield from _in_graph(info.algorithm)


def _in_sparse(tensors: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for sparse in tensors:
        yield from (sparse.values, sparse.indices)


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        yield from _in_attributes(node.attribute)


def _in_attributes(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        elif attribute.type == AttributeProto.TENSORS:
            yield from attribute.tensors
        elif attribute.type == AttributeProto.SPARSE_TENSOR:
            yield from _in_sparse([attribute.sparse_tensor])
        elif attribute.type == AttributeProto.SPARSE_TENSORS:
            yield from _in_sparse(attribute.sparse_tensors)
        elif attribute.type == AttributeProto.GRAPH:
            yield from _in_graph(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for graph in attribute.graphs:
                yield from _in_graph(graph)


def _in_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _in_sparse(graph.sparse_initializer)
    yield from _in_nodes(graph.node)


def _slice(proto: TensorProto, tensor: Tensor, folders: Folders) -> FileSlice:
    if proto.data_type == TensorProto.STRING:
        raise ModelError(f"tensor {proto.name!r}: strings cannot be external data")
    info = {entry.key: entry.value for entry in proto.external_data}
    location = place_of(proto)
    if not folders:
        raise ModelError(
            f"tensor {proto.name!r} has its data in file {location!r}: load the model from its path, "
            "or load the data first (onnx.load does)"
        )
    path = _file(proto.name, location, folders)
    try:
        offset = int(info.get("offset", 0))
        length = int(info["length"]) if "length" in info else tensor.nbytes
    except ValueError as error:
        raise ModelError(f"tensor {proto.name!r}: external data offset or length is not a number") from error
    found = path.stat()
    size = found.st_size
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"tensor {proto.name!r}: bytes {offset} to {offset + length} expected in {location!r}, it has {size}"
        )
    expected = tensor_nbytes(tensor.dtype, tensor.numel)
    if expected is not None and length != expected:
        raise ModelError(f"tensor {proto.name!r}: {expected} bytes expected by its dims, external data has {length}")
    return FileSlice(path, offset, length, (size, found.st_mtime_ns))


def _file(name: str, location: str, folders: Folders) -> Path:
    """The file at a location; it must be inside one of the folders after symbolic links are resolved."""
    inside = False
    if location and not Path(location).is_absolute():
        allowed = [folder.resolve() for folder in folders]
        for folder in folders:
            try:
                path = (folder / location).resolve()
                if not any(map(path.is_relative_to, allowed)):
                    continue
                inside = True
                if path.is_file():
                    return path
            except (OSError, ValueError) as error:
                raise ModelError(
                    f"tensor {name!r}: external data {location[:80]!r} is not a file: {reason_of(error)}"
                ) from error
    if not inside:
        raise ModelError(f"tensor {name!r}: external data {location!r} is outside the model's folder")
    raise ModelError(
        f"tensor {name!r}: external data file {location!r} not found in {folders[0]}; "
        "graphopt optimize, convert and explain do without it where --opaque-weights missing is given"
    )
