"""Reading of models from files, bytes and protos, without loading their weights."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import onnx
from google.protobuf.message import DecodeError

from graphopt.errors import ModelError, UsageError
from graphopt.ir.external import bring_in, check_opaque, folders_of, locations
from graphopt.ir.foreign import as_ir_model
from graphopt.ir.foreign import read as read_foreign
from graphopt.ir.formats import recognized
from graphopt.ir.load import build
from graphopt.ir.model import Model, Source
from graphopt.ir.slices import FileSlice, whole_file
from graphopt.ir.tensor import Tensor
from graphopt.ir.wire import lift
from graphopt.records import dataclass

_LIFT_FROM = 4 << 20
"""Files from this size on are read without their large weights."""

_LARGEST = 2 << 30
"""Bytes of the longest message that protobuf can parse."""

_PART = 1 << 20
"""Bytes read at once."""

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ExternalData:
    """How weights are laid out in a file beside the model.

    Attributes:
        location: file name, relative to the model. By default the model's name with a digest of the data and `.data`
            added, so that no model ever reads data of another; earlier files under such names are removed.
        threshold: tensors of at least this many bytes become external. ONNX Runtime resolves the path for each of them,
            which takes longer than copying a smaller one (docs/adr/0011-session-start.md).
        alignment: each tensor starts at a multiple of this many bytes.
    """

    location: str | None = None
    threshold: int = 16384
    alignment: int = 64

    def __post_init__(self) -> None:
        if self.location is not None and not isinstance(self.location, str):
            raise UsageError(f"external data: the name of a file expected, found {self.location!r}")
        if not (isinstance(self.threshold, int) and isinstance(self.alignment, int)):
            raise UsageError(f"external data: numbers expected, found {self.threshold!r} and {self.alignment!r}")
        if self.threshold < 0 or self.alignment < 1:
            raise ModelError(
                f"external data: threshold >= 0 and alignment >= 1 expected, found {self.threshold}, {self.alignment}"
            )


def read(source: Source, *, inplace: bool = False, opaque: str | None = None) -> Model:
    """Load a model; see `Model.load`."""
    unread = check_opaque(opaque)
    if isinstance(source, onnx.ModelProto):
        model = build(_checked(source, "the given ModelProto"), (), {}, unread)
        model.inplace = inplace
        return model
    if isinstance(source, (bytes, bytearray, memoryview)):
        return build(parse(bytes(source), "the given bytes"), (), {}, unread)
    foreign = as_ir_model(source)
    if foreign is not None:
        return read_foreign(foreign, unread)
    path = as_path(source, "a path, serialized bytes, a ModelProto, an onnx_ir.Model or an ONNXProgram")
    whole = whole_file(path)  # before it is read: what is written into it meanwhile is noticed
    data, slices = _contents(path)
    proto, folders = parse(data, str(path)), folders_of(path)
    with told_of(path):
        brought_in = bring_in(proto, data, folders, unread)
        model = build(proto, folders, slices, unread)
    model.path, model.whole = path, whole
    model.is_apart = has_external(model)
    model.lifted = bool(slices) or model.is_apart
    model.graph.changed = brought_in
    return model


@contextmanager
def told_of(model: Path | str) -> Iterator[None]:
    """Prefix the message of a `ModelError` with the model or file."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{model}: {error}") from error


def as_path(source: object, expected: str = "a path") -> Path:
    """An argument as a path.

    Raises:
        UsageError: it is not a path, or empty.
        ModelError: no file can have that name.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"expected {expected}, found {type(source).__name__}")
    name = os.fsdecode(source)
    if not name:
        raise UsageError(f"expected {expected}, found an empty text")
    if "\0" in name:
        raise ModelError(f"{name!r} is not a path")
    if _URL.match(name) and not os.path.lexists(name):
        raise ModelError(f"{name} is a URL, expected a file; download it first")
    return Path(name)


def _contents(path: Path) -> tuple[bytes, dict[int, FileSlice]]:
    """The bytes of a model file; for a large file without its large weights, and the slices of these."""
    lifted = _lift(path)
    return lifted if lifted is not None else (read_bytes(path), {})


def files_named_by(path: Path) -> set[Path]:
    """The external data files of the model in a file, whether they exist or not; none if it holds no model.

    Args:
        path: the file.
    """
    try:
        names = locations(parse(_contents(path)[0], str(path)))
    except ModelError:
        return set()
    return {Path(os.path.realpath(path.parent / name)) for name in names if "\0" not in name}


def _lift(path: Path) -> tuple[bytes, dict[int, FileSlice]] | None:
    try:
        return lift(path.resolve()) if path.is_file() and path.stat().st_size >= _LIFT_FROM else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(path: Path) -> bytes:
    """The contents of a model file.

    Raises:
        ModelError: it cannot be read; the message states why.
    """
    if path.is_dir():
        raise ModelError(f"{path} is a folder, expected an ONNX file{_within(path)}")
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path))
    except FileNotFoundError as error:
        raise ModelError(f"{path} not found") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def read_stream(stream: IO[bytes], what: str) -> bytes:
    """All bytes of a stream, within a limit: a device may never end.

    Args:
        stream: the stream.
        what: its name in messages.

    Raises:
        ModelError: the stream is longer than any serialized model.
    """
    found = io.BytesIO()
    while part := stream.read(_PART):
        if found.tell() + len(part) > _LARGEST:
            raise ModelError(
                f"{what}: truncated, or no ONNX model (above 2 GiB; weights of that size are read from files only)"
            )
        found.write(part)
    return found.getvalue()


def _within(folder: Path) -> str:
    """A hint for a message: the models that a folder contains, or that it is a SavedModel."""
    if (folder / "saved_model.pb").is_file():
        return "; as a TensorFlow SavedModel it has to be converted to ONNX first, as tf2onnx does"
    models = sorted(path.name for path in folder.glob("*.onnx"))
    return f"; it has {', '.join(models[:3])}{', ...' if models[3:] else ''}" if models else ""


def parse(data: bytes, what: str) -> onnx.ModelProto:
    """Parse a serialized model.

    Args:
        data: the serialized model.
        what: its name in messages.

    Raises:
        ModelError: the bytes are not an ONNX model.
    """
    if not data:
        raise ModelError(f"{what}: empty, expected an ONNX model")
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{what}: {_no_model(data) or f'truncated, or no ONNX model ({len(data)} bytes)'}") from error
    if not proto.HasField("graph") and (found := _no_model(data)):
        raise ModelError(f"{what}: {found}")
    return _checked(proto, what)


def _no_model(data: bytes) -> str:
    found = recognized(data)
    return f"expected a binary ONNX model, found {found}" if found else ""


def _checked(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{what}: no ONNX model (ir_version or graph is missing)")
    if not proto.opset_import and proto.ir_version >= 3:
        raise ModelError(f"{what}: an opset_import is required from IR version 3 on, found none")
    return proto


def has_external(model: Model) -> bool:
    """Whether the model has initializers whose data came from an external file."""
    return any(is_external(v.tensor) for v in model.graph.initializers)


def is_external(tensor: Tensor | None) -> bool:
    """Whether a tensor's data came from an external file."""
    original = tensor.original if tensor is not None and not tensor.is_opaque else None
    return original is not None and original.data_location == onnx.TensorProto.EXTERNAL
