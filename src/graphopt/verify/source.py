"""A model to be run: a light proto for inspection, and a form to load, without needless copies of weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import onnx
from google.protobuf.message import EncodeError

from graphopt.errors import ModelError
from graphopt.ir.contents import check_model
from graphopt.ir.external import Folders, folders_of, locations
from graphopt.ir.files import parse, read_bytes, told_of
from graphopt.ir.foreign import as_ir_model, to_proto
from graphopt.ir.messages import copy_fields
from graphopt.ir.model import Source as AnySource
from graphopt.system.files import scratch
from graphopt.system.given import is_text

ModelLike = AnySource
"""The forms of a model that `compare` accepts."""

_SMALL_BYTES = 4096  # inference and input generation use values of small tensors (shapes, axes)
_EXTERNAL = onnx.TensorProto.EXTERNAL


class Source:
    """One model, given in any form.

    Attributes:
        proto: The model for inspection. Large weights may be absent from it: see `skeleton`.
        label: Its name in messages.
    """

    __slots__ = ("_beside", "_folder", "_given", "_temporary", "label", "proto")

    def __init__(self, model: ModelLike, label: str) -> None:
        self.label = label
        self._temporary = ExitStack()
        self._folder: Path | None = None
        self._beside: set[str] = set()
        self._given: onnx.ModelProto | bytes | Path
        foreign = as_ir_model(model)
        if foreign is not None:
            model = to_proto(foreign)
        if isinstance(model, bytearray | memoryview):
            model = bytes(model)
        if isinstance(model, onnx.ModelProto):
            self._given, self.proto = model, model
        elif isinstance(model, bytes):
            self._given, self.proto = model, parse(model, label)
        elif isinstance(model, (str, os.PathLike)):
            given = Path(os.fsdecode(model))
            self.proto = parse(read_bytes(given), str(model))
            self._beside = locations(self.proto)
            self._given = _with_its_data(given, self._beside)
        else:
            raise ModelError(f"{label}: expected a ModelProto, bytes or a path, found {type(model).__name__}")
        with told_of(self._given if isinstance(self._given, Path) else label):
            check_model(self.proto)
        if isinstance(self._given, Path):
            self.proto = skeleton(self.proto)

    def loadable(self) -> str | bytes:
        """The form that onnxruntime loads: the path if there is one, else the serialized model."""
        if isinstance(self._given, Path):
            return str(self.path())
        if isinstance(self._given, bytes):
            return self._given
        try:
            return self._given.SerializeToString()
        except (EncodeError, ValueError):  # above the 2 GiB that one message can hold
            return str(self._spill(self._given))

    def full_proto(self) -> onnx.ModelProto:
        """The model with all its weights, for the reference evaluator."""
        if isinstance(self._given, Path):
            return onnx.load(self.plain_path())
        return self.proto

    def weight_bytes(self) -> int:
        """Bytes of the model's weights, external ones included, without reading them."""
        if isinstance(self._given, Path):
            given = self._given.stat().st_size
        elif isinstance(self._given, bytes):
            given = len(self._given)
        else:
            given = sum(len(t.raw_data) + 8 * len(t.float_data) for t in self._given.graph.initializer)
        return given + sum(file.stat().st_size for file in self._data_files() if file.is_file())

    def path(self) -> Path:
        """A file with the model, for the runtime, which needs its name as text.

        It is a temporary file if the model was given in memory, or its name is not text.
        """
        if isinstance(self._given, Path):
            return self._given if is_text(str(self._given)) else self._copied(self._given)
        loadable = self.loadable()
        if isinstance(loadable, str):
            return Path(loadable)
        target = self._directory() / "model.onnx"
        target.write_bytes(loadable)
        return target

    def plain_path(self) -> Path:
        """A file with the model, for other readers.

        ONNX's own reader refuses data behind a symbolic or hard link, as caches have it.
        """
        path = self.path()
        files = [file for file in self._data_files() if file.is_file()]
        linked = any(file.is_symlink() or file.stat().st_nlink > 1 for file in files)
        return self._copied(path) if linked and path == self._given else path

    def _data_files(self) -> list[Path]:
        """The model's external data files: next to the given path."""
        return [self._given.parent / name for name in self._beside] if isinstance(self._given, Path) else []

    def close(self) -> None:
        """Delete the temporary files."""
        self._temporary.close()
        self._folder = None

    def _directory(self) -> Path:
        if self._folder is None:
            self._folder = self._temporary.enter_context(scratch())
        return self._folder

    def _copied(self, path: Path) -> Path:
        """A copy of a model and its data without links; the path itself if that is not possible."""
        folder = self._directory()
        target = folder / path.name.encode(errors="replace").decode()
        if target.exists():
            return target
        files = self._data_files()
        needed = sum(file.stat().st_size for file in (path, *files) if file.is_file())
        may_be_read = all(map(_is_below, self._beside)) and all(_is_inside(file, folders_of(path)) for file in files)
        if not may_be_read or shutil.disk_usage(folder).free < 2 * needed:
            return path
        for name, file in zip(self._beside, files, strict=True):
            if file.is_file():  # the reader of the copy reports missing files
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / name)
        shutil.copyfile(path, target)
        return target

    def _spill(self, model: onnx.ModelProto) -> Path:
        """Write a model above 2 GiB with external weights, without changing the caller's proto."""
        target = self._directory() / "model.onnx"
        if target.exists():
            return target
        copy = without_weights(model)
        with (self._directory() / "model.data").open("wb") as data:
            for tensor in model.graph.initializer:
                stub = copy.graph.initializer.add()
                if not tensor.HasField("raw_data") or len(tensor.raw_data) < _SMALL_BYTES:
                    stub.CopyFrom(tensor)
                    continue
                _describe(tensor, stub)
                stub.data_location = _EXTERNAL
                where = {"location": "model.data", "offset": str(data.tell()), "length": str(len(tensor.raw_data))}
                for key, value in where.items():
                    stub.external_data.add(key=key, value=value)
                data.write(tensor.raw_data)
        target.write_bytes(copy.SerializeToString())
        return target


def _with_its_data(path: Path, beside: set[str]) -> Path:
    """The path by which a runtime finds a model's external data: it looks next to the given path.

    That may be a link, as in a model hub's cache, next to links to the data; or the data is next to the link's target.
    """
    link, real = path.absolute(), path.resolve()
    if path.is_symlink() and not all((link.parent / name).exists() for name in beside):
        return real
    return link


def _is_below(name: str) -> bool:
    """Whether a location stays in its folder; the runtime refuses others."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts and "\0" not in name


def _is_inside(file: Path, folders: Folders) -> bool:
    """Whether a file is in one of the folders after links are resolved; the runtime refuses others."""
    return not file.is_file() or any(file.resolve().is_relative_to(folder.resolve()) for folder in folders)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the main graph's initializers."""
    copy = onnx.ModelProto()
    copy_fields(model, copy, ("graph",))
    copy_fields(model.graph, copy.graph, ("initializer",))
    return copy


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers have only name, type and dimensions."""
    copy = without_weights(model)
    for tensor in model.graph.initializer:
        stub = copy.graph.initializer.add()
        if tensor.data_location == _EXTERNAL or tensor.ByteSize() > _SMALL_BYTES:
            _describe(tensor, stub)
        else:
            stub.CopyFrom(tensor)
    return copy


def has_values(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor contains its data; `skeleton` removes that of large ones."""
    if tensor.data_location == _EXTERNAL:
        return False
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count == 0 or any(
        field.name.endswith("_data") and field.name != "external_data" for field, _ in tensor.ListFields()
    )


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes with all nodes of their subgraphs, recursively."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g.node)


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """The names of a node's inputs, and of all inputs and graph outputs in its subgraphs."""
    for inner in all_nodes([node]):
        yield from inner.input
        for attribute in inner.attribute:
            yield from (info.name for info in attribute.g.output)


def constant_tensors(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> dict[str, onnx.TensorProto]:
    """The tensors of a graph's initializers, and of the `Constant` among `nodes`, if they contain data."""
    found = {tensor.name: tensor for tensor in graph.initializer if has_values(tensor)}
    for node in nodes:
        for attribute in node.attribute if node.op_type == "Constant" and node.output else ():
            if attribute.type == onnx.AttributeProto.TENSOR and has_values(attribute.t):
                found[node.output[0]] = attribute.t
    return found


def _describe(tensor: onnx.TensorProto, stub: onnx.TensorProto) -> None:
    stub.name, stub.data_type = tensor.name, tensor.data_type
    stub.dims.extend(tensor.dims)
