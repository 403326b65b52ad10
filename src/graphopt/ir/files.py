"""Models in files: reading without loading weights, writing atomically, external data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO

import onnx
from google.protobuf.message import DecodeError, EncodeError

from graphopt.errors import ModelError, UsageError
from graphopt.ir.external import bring_in, folders_of
from graphopt.ir.flush import flush
from graphopt.ir.load import build
from graphopt.ir.model import Model, Source
from graphopt.ir.tensor import FileSlice, Tensor
from graphopt.ir.types import element_bits
from graphopt.ir.wire import delimited, lift

_LIFT_FROM = 4 << 20
"""Files from this size on are read without their large weights."""

_PROTO_LIMIT = (1 << 31) - (1 << 20)
"""What fits into one protobuf message, with some room."""

_ORT_FORMAT = b"ORTM"
"""The file identifier of ONNX Runtime's format, from the fifth byte on."""

_WRITE_STREAMED_FROM = 1 << 26
"""Models with more weight bytes than this are written piece by piece instead of being serialized whole."""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """How weights are laid out in a file beside the model.

    Attributes:
        location: file name, relative to the model; by default the model's name with `.data` added.
        threshold: tensors of at least this many bytes go outside. ONNX Runtime resolves the path anew for each of them,
            which takes longer than to copy a smaller one (docs/adr/0011-session-start.md).
        alignment: each tensor starts at a multiple of this many bytes.
    """

    location: str | None = None
    threshold: int = 16384
    alignment: int = 64

    def __post_init__(self) -> None:
        if not (isinstance(self.threshold, int) and isinstance(self.alignment, int)):
            raise UsageError(f"external data: numbers expected, found {self.threshold!r} and {self.alignment!r}")
        if self.threshold < 0 or self.alignment < 1:
            raise ModelError(
                f"external data: threshold >= 0 and alignment >= 1 expected, found {self.threshold}, {self.alignment}"
            )


def read(source: Source, *, inplace: bool = False) -> Model:
    """Load a model; see `Model.load`."""
    if isinstance(source, onnx.ModelProto):
        model = build(_checked(source, "the given ModelProto"), (), {})
        model.inplace = inplace
        return model
    if isinstance(source, (bytes, bytearray, memoryview)):
        return build(parse(bytes(source), "the given bytes"), (), {})
    path = as_path(source, "a path, serialized bytes or a ModelProto")
    lifted = _lift(path)
    data, slices = lifted if lifted is not None else (read_bytes(path), {})
    proto, folders = parse(data, str(path)), folders_of(path)
    brought_in = bring_in(proto, data, folders)
    model = build(proto, folders, slices)
    model.path = path
    model.lifted = bool(slices) or _has_external(model)
    model.graph.changed = brought_in
    return model


def as_path(source: object, expected: str = "a path") -> Path:
    """The path that an argument names.

    Raises:
        UsageError: it is something else.
        ModelError: no file can have that name.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"expected {expected}, found {type(source).__name__}")
    name = os.fsdecode(source)
    if "\0" in name:
        raise ModelError(f"{name!r} is no path")
    return Path(name)


def _lift(path: Path) -> tuple[bytes, dict[int, FileSlice]] | None:
    try:
        return lift(path.resolve()) if path.is_file() and path.stat().st_size >= _LIFT_FROM else None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(path: Path) -> bytes:
    """The contents of a model file.

    Raises:
        ModelError: it cannot be read; the message says why.
    """
    if path.is_dir():
        raise ModelError(f"{path} is a folder, expected an ONNX file")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{path} not found") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def parse(data: bytes, what: str) -> onnx.ModelProto:
    """A model from its bytes.

    Args:
        data: the serialized model.
        what: how a message calls it.

    Raises:
        ModelError: they are no ONNX model.
    """
    if not data:
        raise ModelError(f"{what}: empty, expected an ONNX model")
    if data[4:8] == _ORT_FORMAT:
        raise ModelError(
            f"{what}: a model in ONNX Runtime's own format (.ort), expected the ONNX model it was made from"
        )
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
    if external is not None and not isinstance(external, ExternalData):
        raise UsageError(f"external_data: expected an ExternalData, found {type(external).__name__}")
    if not os.path.isdir(path.parent):
        raise ModelError(f"cannot write {path}: folder {path.parent} not found")
    if os.path.isdir(path):
        raise ModelError(f"cannot write {path}: it is a folder")
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
        whole = FileSlice(model.path, 0, model.path.stat().st_size)
        with _staged(path) as (file,), _Sources() as sources:
            _copy(whole, file, sources)
    elif model.lifted or _weight_bytes(model) >= _WRITE_STREAMED_FROM:
        _write_streamed(model, path)
    else:
        data = _serialized(flush(model), path)
        with _staged(path) as (file,):
            file.write(data)


def _serialized(proto: onnx.ModelProto | onnx.GraphProto, path: Path) -> bytes:
    try:
        return proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelError(f"cannot write {path}: above 2 GiB even without the main graph's initializers") from error


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
    graph = _serialized(proto.graph, path)
    proto.ClearField("graph")
    total = len(graph) + sum(len(head) + size for head, _, size in heads)
    places = _hold_the_rest(model, {path}, streamed)
    moved = []
    target = path.resolve()
    with _staged(path) as (file,), _Sources() as sources:
        file.write(proto.SerializeToString())
        file.write(delimited(7, total))
        file.write(graph)
        for head, tensor, size in heads:
            file.write(head)
            moved.append((tensor, FileSlice(target, file.tell(), size)))
            _copy(tensor.raw(), file, sources)
    _follow(moved, places)


def _hold_the_rest(model: Model, replaced: set[Path], moving: Mapping[str, Tensor]) -> set[Path]:
    """Before files are replaced that the model still reads from: load what does not move into the new ones.

    Returns:
        The files that are replaced, as the model knows them.
    """
    places = {path.parent.resolve() / path.name for path in replaced}
    for value in model.graph.initializers:
        tensor = None if value.name in moving else value.tensor
        if tensor is not None and tensor.source is not None and tensor.source.path in places:
            tensor.hold()
    return places


def _follow(moved: Iterable[tuple[Tensor, FileSlice]], places: set[Path]) -> None:
    """After files were replaced: what was read from them is in the new ones."""
    for tensor, place in moved:
        if tensor.source is not None and tensor.source.path in places:
            tensor.source = place


def _without(model: Model, names: set[str]) -> onnx.ModelProto:
    """The flushed model without some initializers of the main graph."""
    values = model.graph.values
    hidden = {name: values[name].tensor for name in names}
    for name in names:
        values[name].tensor = None
    was = model.graph.changed, model.inplace
    model.graph.changed, model.inplace = True, False
    try:
        return flush(model)
    finally:
        model.graph.changed, model.inplace = was
        for name, tensor in hidden.items():
            values[name].tensor = tensor


def _write_external(model: Model, path: Path, external: ExternalData) -> None:
    location = external.location or f"{path.name}.data"
    data_path = path.parent / location
    _check_data_path(model, path, data_path, location)
    outside = {
        v.name: v.tensor
        for v in model.graph.initializers
        if v.tensor is not None
        and (v.tensor.nbytes >= max(external.threshold, 1) or _is_external(v.tensor))
        and element_bits(v.tensor.dtype) is not None
    }
    proto = _without(model, set(outside))
    places = _hold_the_rest(model, {path, data_path}, outside)
    moved = []
    target = data_path.resolve()
    with _staged(data_path, path) as (data_file, file), _Sources() as sources:
        for name, tensor in outside.items():
            data_file.write(b"\0" * (-data_file.tell() % external.alignment))
            offset = data_file.tell()
            length = _copy(tensor.raw(), data_file, sources)
            moved.append((tensor, FileSlice(target, offset, length)))
            entry = proto.graph.initializer.add()
            entry.CopyFrom(tensor.header(name))
            entry.data_location = onnx.TensorProto.EXTERNAL
            for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
                entry.external_data.add(key=key, value=text)
        file.write(_serialized(proto, path))
    _follow(moved, places)


def _check_data_path(model: Model, path: Path, data_path: Path, location: str) -> None:
    if Path(location).is_absolute() or not data_path.resolve().is_relative_to(path.parent.resolve()):
        raise ModelError(f"external data {location!r} must be inside the model's folder {path.parent}")
    if data_path.resolve() == path.resolve():
        raise ModelError(f"external data cannot go into the model file {path} itself")
    if data_path.is_dir():
        raise ModelError(f"cannot write external data {data_path}: it is a folder")
    if model.path is None or model.path.resolve() == path.resolve():
        return
    read = {v.tensor.source.path for v in model.graph.initializers if v.tensor is not None and v.tensor.source}
    if data_path.resolve() in read | {model.path.resolve()}:
        raise ModelError(f"external data {data_path} would replace what {model.path} consists of; choose another name")


class _Sources(ExitStack):
    """The files that tensors are copied from, each opened once."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[Path, FileIO] = {}

    def open(self, path: Path) -> FileIO:
        """A file, open for reading."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self.enter_context(FileIO(path))
        return file


_BY_KERNEL_FROM = 1 << 16
"""Slices of this many bytes are copied from file to file; smaller ones go the way of all that is written."""


def _copy(raw: bytes | memoryview | FileSlice, file: IO[bytes], sources: _Sources) -> int:
    if not isinstance(raw, FileSlice):
        file.write(raw)
        return len(raw)
    source = sources.open(raw.path)
    left, offset = raw.length, raw.offset
    if left >= _BY_KERNEL_FROM and hasattr(os, "copy_file_range"):
        file.flush()
        while left:
            try:
                done = os.copy_file_range(source.fileno(), file.fileno(), min(left, 1 << 30), offset)
            except OSError:
                break
            if not done:
                break
            left, offset = left - done, offset + done
        file.seek(0, os.SEEK_END)
    source.seek(offset)
    while left:
        piece = source.read(min(left, 1 << 24))
        if not piece:
            raise ModelError(f"tensor data file {raw.path} ended {left} bytes early")
        file.write(piece)
        left -= len(piece)
    return raw.length


@contextmanager
def _staged(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Files that take their names only when all of all are written; on disk, too, where they replace one."""
    names: list[str] = []
    path = paths[0]
    try:
        with ExitStack() as stack:
            files: list[IO[bytes]] = []
            for path in paths:
                # Names may be nearly as long as the file system allows.
                handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
                names.append(name)
                files.append(stack.enter_context(os.fdopen(handle, "wb")))
            yield files
            for path, file in zip(paths, files, strict=True):
                file.flush()
                if path.exists():
                    os.fsync(file.fileno())
        for path, name in zip(paths, names, strict=True):
            mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
            os.chmod(name, mode & 0o777)
            os.replace(name, path)
    except BaseException as error:
        for name in names:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, (OSError, ValueError)):
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ModelError(f"cannot write {path}: {why}") from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
