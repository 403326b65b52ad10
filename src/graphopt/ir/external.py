"""External data: where a tensor's bytes are, and which tensors do without a place of their own in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto

from graphopt.errors import ModelError
from graphopt.ir.contents import check_dims
from graphopt.ir.tensor import FileSlice, Tensor
from graphopt.ir.types import tensor_nbytes

Folders = tuple[Path, ...]
"""Where external data may be: beside the model's path as given, and beside the file that a link leads to."""

KEY = b"location"
"""Part of every reference to external data, as it is in the file."""


def folders_of(path: Path) -> Folders:
    """The folders that a model's external data is looked for in, those of a model hub's cache of links included."""
    return tuple(dict.fromkeys((path.absolute().parent, path.resolve().parent)))


def tensor_from_proto(proto: TensorProto, folders: Folders) -> Tensor:
    """The tensor of a proto whose dimensions were checked.

    External data is located, checked to stay inside of the folders, and not read.

    Raises:
        ModelError: an external tensor without a folder to look in, or that points outside of it.
    """
    tensor = Tensor(proto.data_type, tuple(proto.dims), proto=proto)
    if proto.data_location == TensorProto.EXTERNAL:
        tensor.source = _slice(proto, tensor, folders)
    return tensor


def bring_in(model: onnx.ModelProto, data: bytes, folders: Folders) -> bool:
    """Read the external data of every tensor that is no initializer of the main graph into the model itself.

    Initializers of the main graph are streamed from file to file; those of bodies, and constants in attributes,
    are few and small, so they just become part of the model.

    Args:
        model: a model that its reader owns.
        data: the bytes it was parsed from; they tell soon that there is nothing to do.
        folders: where the files are.

    Returns:
        Whether there was any.

    Raises:
        ModelError: the data cannot be read.
    """
    if KEY not in data:
        return False
    found = False
    nodes = [model.graph.node, *(function.node for function in model.functions)]
    inner = [t for sparse in model.graph.sparse_initializer for t in (sparse.values, sparse.indices)]
    for tensor in (*inner, *(t for each in nodes for t in _in_nodes(each))):
        if tensor.data_location == TensorProto.EXTERNAL:
            check_dims(tuple(tensor.dims), f"tensor {tensor.name!r}")
            held = tensor_from_proto(tensor, folders)
            held.hold()
            assert held.original is not None
            tensor.CopyFrom(held.original)
            found = True
    return found


def locations(model: onnx.ModelProto) -> set[str]:
    """The names of all files that a model refers to, as they are written in it."""
    tensors = [*_in_graph(model.graph), *(t for function in model.functions for t in _in_nodes(function.node))]
    return {
        entry.value
        for tensor in tensors
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from _in_attribute(attribute)


def _in_attribute(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.type == AttributeProto.TENSOR:
        yield attribute.t
    elif attribute.type == AttributeProto.TENSORS:
        yield from attribute.tensors
    elif attribute.type == AttributeProto.SPARSE_TENSOR:
        yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
    elif attribute.type == AttributeProto.GRAPH:
        yield from _in_graph(attribute.g)
    elif attribute.type == AttributeProto.GRAPHS:
        for graph in attribute.graphs:
            yield from _in_graph(graph)


def _in_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _in_nodes(graph.node)


def _slice(proto: TensorProto, tensor: Tensor, folders: Folders) -> FileSlice:
    info = {entry.key: entry.value for entry in proto.external_data}
    location = info.get("location", "")
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
        raise ModelError(f"tensor {proto.name!r}: external data offset or length is no number") from error
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
    """The file that a location names, inside of one of the folders even where links lead."""
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
                raise ModelError(f"tensor {name!r}: external data {location[:80]!r} is no file: {error}") from error
    if not inside:
        raise ModelError(f"tensor {name!r}: external data {location!r} is outside the model's folder")
    raise ModelError(f"tensor {name!r}: external data file {location!r} not found in {folders[0]}")
