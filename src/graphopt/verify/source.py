"""A model to be run: a light proto for looking at it, and what a runtime loads, with no needless copy of weights."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import onnx
from google.protobuf.message import EncodeError

from graphopt.errors import ModelError
from graphopt.ir.contents import check_model
from graphopt.ir.external import locations
from graphopt.ir.files import parse, read_bytes
from graphopt.ir.foreign import as_ir_model, to_proto
from graphopt.ir.messages import copy_fields
from graphopt.ir.model import Source as AnySource
from graphopt.system.files import scratch

ModelLike = AnySource
"""What `compare` accepts for a model."""

_SMALL_BYTES = 4096  # values of small tensors (shapes, axes) tell inference and input generation something
_EXTERNAL = onnx.TensorProto.EXTERNAL


class Source:
    """One model, in whichever form it was given.

    Attributes:
        proto: The graph for looking at. Large weights may be absent from it: see `skeleton`.
        label: How messages call it.
    """

    __slots__ = ("_folder", "_given", "_temporary", "label", "proto")

    def __init__(self, model: ModelLike, label: str) -> None:
        self.label = label
        self._temporary = ExitStack()
        self._folder: Path | None = None
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
            self._given = _with_its_data(given, self.proto)
        else:
            raise ModelError(f"{label}: expected a ModelProto, bytes or a path, found {type(model).__name__}")
        check_model(self.proto)
        if isinstance(self._given, Path):
            self.proto = skeleton(self.proto)

    def loadable(self) -> str | bytes:
        """What onnxruntime loads: the path where there is one, else the serialized model."""
        if isinstance(self._given, Path):
            return str(self._given)
        if isinstance(self._given, bytes):
            return self._given
        try:
            return self._given.SerializeToString()
        except (EncodeError, ValueError):  # above the 2 GiB that one message can hold
            return str(self._spill(self._given))

    def full_proto(self) -> onnx.ModelProto:
        """The model with all its weights, for the reference evaluator."""
        if isinstance(self._given, Path):
            return onnx.load(self._given)
        return self.proto

    def weight_bytes(self) -> int:
        """Bytes of the model's weights, external ones included, without reading them."""
        if isinstance(self._given, Path):
            given = self._given.stat().st_size
        elif isinstance(self._given, bytes):
            given = len(self._given)
        else:
            given = sum(len(t.raw_data) + 8 * len(t.float_data) for t in self._given.graph.initializer)
        elsewhere = [e.value for t in self.proto.graph.initializer for e in t.external_data if e.key == "length"]
        return given + sum(int(length) for length in elsewhere)

    def path(self) -> Path:
        """A file that holds the model; written to a temporary directory when it was given in memory."""
        if isinstance(self._given, Path):
            return self._given
        loadable = self.loadable()
        if isinstance(loadable, str):
            return Path(loadable)
        target = self._directory() / "model.onnx"
        target.write_bytes(loadable)
        return target

    def close(self) -> None:
        """Delete the temporary files."""
        self._temporary.close()
        self._folder = None

    def _directory(self) -> Path:
        if self._folder is None:
            self._folder = self._temporary.enter_context(scratch())
        return self._folder

    def _spill(self, model: onnx.ModelProto) -> Path:
        """Write a model above 2 GiB with its weights beside it, leaving the caller's proto as it is."""
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


def _with_its_data(path: Path, model: onnx.ModelProto) -> Path:
    """The path by which a runtime finds a model's external data: it looks beside the name that it is given.

    That may be a link, as in a model hub's cache, with links to the data beside it; or the data is beside what the link
    leads to.
    """
    link, real = path.absolute(), path.resolve()
    if path.is_symlink() and not all((link.parent / name).exists() for name in locations(model)):
        return real
    return link


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of everything but the main graph's initializers."""
    copy = onnx.ModelProto()
    copy_fields(model, copy, ("graph",))
    copy_fields(model.graph, copy.graph, ("initializer",))
    return copy


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers keep only name, type and dimensions."""
    copy = without_weights(model)
    for tensor in model.graph.initializer:
        stub = copy.graph.initializer.add()
        if tensor.data_location == _EXTERNAL or tensor.ByteSize() > _SMALL_BYTES:
            _describe(tensor, stub)
        else:
            stub.CopyFrom(tensor)
    return copy


def has_values(tensor: onnx.TensorProto) -> bool:
    """False for a tensor of which `skeleton` kept only the description."""
    if tensor.data_location == _EXTERNAL:
        return False
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count == 0 or any(
        field.name.endswith("_data") and field.name != "external_data" for field, _ in tensor.ListFields()
    )


def _describe(tensor: onnx.TensorProto, stub: onnx.TensorProto) -> None:
    stub.name, stub.data_type = tensor.name, tensor.data_type
    stub.dims.extend(tensor.dims)
