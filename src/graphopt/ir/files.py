"""Models in files: reading without loading weights, writing atomically, external data."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import onnx
from google.protobuf.message import DecodeError

from graphopt.errors import ModelError
from graphopt.ir.flush import flush
from graphopt.ir.load import build
from graphopt.ir.model import Model, Source
from graphopt.ir.tensor import FileSlice, Tensor, iter_chunks
from graphopt.ir.types import element_bits
from graphopt.ir.wire import delimited, lift

_LIFT_FROM = 4 << 20
"""Files from this size on are read without their large weights."""

_PROTO_LIMIT = (1 << 31) - (1 << 20)
"""What fits into one protobuf message, with some room."""

_WRITE_STREAMED_FROM = 1 << 26
"""Models with more weight bytes than this are written piece by piece instead of being serialized whole."""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """How weights are laid out in a file beside the model.

    Attributes:
        location: file name, relative to the model; by default the model's name with `.data` added.
        threshold: tensors of at least this many bytes go outside.
        alignment: each tensor starts at a multiple of this many bytes.
    """

    location: str | None = None
    threshold: int = 1024
    alignment: int = 64

    def __post_init__(self) -> None:
        if self.threshold < 0 or self.alignment < 1:
            raise ModelError(
                f"external data: threshold >= 0 and alignment >= 1 expected, found {self.threshold}, {self.alignment}"
            )


def read(source: Source, *, inplace: bool = False) -> Model:
    """Load a model; see `Model.load`."""
    if isinstance(source, onnx.ModelProto):
        model = build(_checked(source, "the given ModelProto"), None, {})
        model.inplace = inplace
        return model
    if isinstance(source, (bytes, bytearray, memoryview)):
        return build(_parse(bytes(source), "the given bytes"), None, {})
    path = Path(source)
    lifted = _lift(path)
    if lifted is not None:
        data, slices = lifted
    else:
        data, slices = _read_bytes(path), {}
    model = build(_parse(data, str(path)), path.resolve().parent, slices)
    model.path = path
    model.lifted = bool(slices)
    return model


def _lift(path: Path) -> tuple[bytes, dict[int, FileSlice]] | None:
    try:
        return lift(path.resolve()) if path.is_file() and path.stat().st_size >= _LIFT_FROM else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise ModelError(f"{path} is a folder, expected an ONNX file")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{path} not found") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{what}: empty, expected an ONNX model")
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{what}: truncated, or no ONNX model ({len(data)} bytes)") from error
    return _checked(proto, what)


def _checked(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{what}: no ONNX model (ir_version or graph is missing)")
    if not proto.opset_import and proto.ir_version >= 3:
        raise ModelError(f"{what}: an opset_import is required from IR version 3 on, found none")
    return proto


def write(model: Model, path: Path, external: ExternalData | None) -> None:
    """Write a model; see `Model.save`."""
    if not path.parent.is_dir():
        raise ModelError(f"cannot write {path}: folder {path.parent} not found")
    if external is None and (model.path is None or not _has_external(model)):
        external = ExternalData() if _weight_bytes(model) >= _PROTO_LIMIT else None
        if external is None:
            _write_inline(model, path)
            return
    _write_external(model, path, external or ExternalData())


def _has_external(model: Model) -> bool:
    return any(_is_external(v.tensor) for v in model.graph.initializers)


def _is_external(tensor: Tensor | None) -> bool:
    original = tensor.original if tensor is not None else None
    return original is not None and original.data_location == onnx.TensorProto.EXTERNAL


def _weight_bytes(model: Model) -> int:
    return sum(v.tensor.nbytes for v in model.graph.initializers if v.tensor is not None)


def _write_inline(model: Model, path: Path) -> None:
    if not model.changed and model.path is not None:
        with _atomic(path) as file, model.path.open("rb") as source:
            shutil.copyfileobj(source, file, 1 << 22)
    elif model.lifted or _weight_bytes(model) >= _WRITE_STREAMED_FROM:
        _write_streamed(model, path)
    else:
        data = flush(model).SerializeToString()
        with _atomic(path) as file:
            file.write(data)


def _write_streamed(model: Model, path: Path) -> None:
    """Serialize everything but the large initializers, and let those flow from where they are."""
    streamed = {
        v.name: v.tensor
        for v in model.graph.initializers
        if v.tensor is not None and v.tensor.nbytes >= 1024 and element_bits(v.tensor.dtype) is not None
    }
    proto = _without(model, set(streamed))
    heads = []
    for name, tensor in streamed.items():
        header = tensor.header(name).SerializeToString()
        raw = tensor.raw()
        size = raw.length if isinstance(raw, FileSlice) else len(raw)
        field = header + delimited(9, size)
        heads.append((delimited(5, len(field) + size) + field, tensor, size))
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    total = len(graph) + sum(len(head) + size for head, _, size in heads)
    with _atomic(path) as file:
        file.write(proto.SerializeToString())
        file.write(delimited(7, total))
        file.write(graph)
        for head, tensor, _ in heads:
            file.write(head)
            _copy(tensor.raw(), file)


def _without(model: Model, names: set[str]) -> onnx.ModelProto:
    """The flushed model without some initializers of the main graph."""
    values = model.graph.values
    hidden = {name: values[name].tensor for name in names}
    for name in names:
        values[name].tensor = None
    was = model.graph.changed, model.inplace
    model.graph.changed, model.inplace = True, False
    try:
        return flush(model, with_data=False)
    finally:
        model.graph.changed, model.inplace = was
        for name, tensor in hidden.items():
            values[name].tensor = tensor


def _write_external(model: Model, path: Path, external: ExternalData) -> None:
    location = external.location or f"{path.name}.data"
    data_path = path.parent / location
    if Path(location).is_absolute() or not data_path.resolve().is_relative_to(path.parent.resolve()):
        raise ModelError(f"external data {location!r} must be inside the model's folder {path.parent}")
    if data_path.resolve() == path.resolve():
        raise ModelError(f"external data cannot go into the model file {path} itself")
    outside = {
        v.name: v.tensor
        for v in model.graph.initializers
        if v.tensor is not None
        and (v.tensor.nbytes >= max(external.threshold, 1) or _is_external(v.tensor))
        and element_bits(v.tensor.dtype) is not None
    }
    proto = _without(model, set(outside))

    def write_data(file: IO[bytes]) -> None:
        for name, tensor in outside.items():
            file.write(b"\0" * (-file.tell() % external.alignment))
            offset = file.tell()
            length = _copy(tensor.raw(), file)
            entry = proto.graph.initializer.add()
            entry.CopyFrom(tensor.header(name))
            entry.data_location = onnx.TensorProto.EXTERNAL
            for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
                entry.external_data.add(key=key, value=text)

    _write_both(path, data_path, proto, write_data)


def _write_both(path: Path, data_path: Path, proto: onnx.ModelProto, write_data: Callable[[IO[bytes]], None]) -> None:
    """Data first, then the model that refers to it; each appears under its name only when it is complete."""
    with _atomic(data_path) as data_file:
        write_data(data_file)
        text = proto.SerializeToString()
        data_file.flush()
    with _atomic(path) as file:
        file.write(text)


def _copy(raw: bytes | memoryview | FileSlice, file: IO[bytes]) -> int:
    if not isinstance(raw, FileSlice):
        file.write(raw)
        return len(raw)
    file.flush()
    with raw.path.open("rb") as source:
        left, offset = raw.length, raw.offset
        while left and hasattr(os, "copy_file_range"):
            try:
                done = os.copy_file_range(source.fileno(), file.fileno(), min(left, 1 << 30), offset)
            except OSError:
                break
            if not done:
                break
            left, offset = left - done, offset + done
    file.seek(0, os.SEEK_END)
    if left:
        for piece in iter_chunks(FileSlice(raw.path, offset, left)):
            file.write(piece)
    return raw.length


@contextmanager
def _atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when all of it is written; on disk, too, where one of that name is replaced."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if path.exists():
                os.fsync(file.fileno())
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        os.chmod(name, mode & 0o777)
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
