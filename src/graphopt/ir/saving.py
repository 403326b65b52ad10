"""Saving of models: atomic, with weights streamed from their files, and always consistent with external data."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import IO

import onnx
from google.protobuf.message import EncodeError

from graphopt.errors import ModelError, UsageError, reason_of
from graphopt.ir.external import place_of
from graphopt.ir.files import ExternalData, files_named_by, has_external, is_external
from graphopt.ir.flush import flush, stored, without_initializers
from graphopt.ir.formats import check_binary_name
from graphopt.ir.messages import delimited
from graphopt.ir.model import Model
from graphopt.ir.slices import FileSlice
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import element_bits
from graphopt.system.files import Draft, alone, destination, is_special, is_temporary, naming
from graphopt.system.given import is_text

_PROTO_LIMIT = (1 << 31) - (1 << 20)
"""The largest protobuf message in bytes, with a margin."""

_WRITE_STREAMED_FROM = 1 << 26
"""Models with at least this many bytes of weights are written piece by piece instead of being serialized whole."""

_OWN_DATA = r".+\.[0-9a-f]{16}\.data"
_LONGEST_STEM = 200
_SEARCHED = 1 << 30
"""Most bytes of other files in a folder that are searched for the name of a data file before it is removed."""


def write(model: Model, path: Path, external: ExternalData | None) -> None:
    """Write a model; see `Model.save`."""
    if external is not None and not isinstance(external, ExternalData):
        raise UsageError(f"external_data: expected an ExternalData, found {type(external).__name__}")
    check_binary_name(path)
    with naming(path):
        target = destination(path)
        special = is_special(target)
        if external is None and ((model.is_apart and not special) or _weight_bytes(model) >= _PROTO_LIMIT):
            external = ExternalData()
        if external is None:
            _write_inline(model, target)
        elif special:
            raise ModelError(f"cannot write {path}: weights cannot be stored beside something that is not a file")
        elif target.parent != path.absolute().parent.resolve():
            raise ModelError(
                f"cannot write {path}: it links to {target}, and weights cannot be beside both; name the target"
            )
        else:
            _write_external(model, target, external)


def _weight_bytes(model: Model) -> int:
    return sum(v.tensor.nbytes for v in model.graph.initializers if v.tensor is not None and not v.tensor.is_opaque)


def _unread_files(model: Model, folder: Path) -> set[Path]:
    """Files of external data that the model still refers to, unread."""
    names = {place_of(tensor.original) for tensor in model.unread() if tensor.original is not None}
    return {destination(folder / name) for name in names if name and not Path(name).is_absolute()}


# -- everything in one file


def _write_inline(model: Model, target: Path) -> None:
    moved: list[tuple[Tensor, FileSlice]] = []
    with Draft(target) as draft, _Sources() as sources:
        if model.whole is not None and model.whole.is_there and not model.changed and not has_external(model):
            _copy(model.whole, draft.file, sources)
        elif model.lifted or _weight_bytes(model) >= _WRITE_STREAMED_FROM:
            moved = _write_streamed(model, draft, sources)
        else:
            draft.file.write(_serialized(flush(model), target))
        _publish(model, target, lambda: [(draft, target)], moved)


def _write_streamed(model: Model, draft: Draft, sources: _Sources) -> list[tuple[Tensor, FileSlice]]:
    """Serialize everything but the large initializers, and stream those from their sources."""
    streamed = {
        v.name: v.tensor
        for v in stored(model.graph)
        if v.tensor is not None
        and not v.tensor.is_opaque
        and v.tensor.nbytes >= 1024
        and element_bits(v.tensor.dtype) is not None
    }
    proto = without_initializers(model, set(streamed))
    heads = []
    for name, tensor in streamed.items():
        header = tensor.header(name).SerializeToString()
        raw = tensor.raw()
        size = raw.length if isinstance(raw, FileSlice) else len(raw)
        field = header + delimited(9, size)
        heads.append((delimited(5, len(field) + size) + field, tensor, size))
    graph = _serialized(proto.graph, draft.target)
    proto.ClearField("graph")
    total = len(graph) + sum(len(head) + size for head, _, size in heads)
    moved = []
    draft.file.write(proto.SerializeToString())
    draft.file.write(delimited(7, total))
    draft.file.write(graph)
    for head, tensor, size in heads:
        draft.file.write(head)
        moved.append((tensor, FileSlice(draft.target, draft.file.tell(), size)))
        _copy(tensor.raw(), draft.file, sources)
    return moved


def _serialized(proto: onnx.ModelProto | onnx.GraphProto, path: Path) -> bytes:
    try:
        return proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelError(f"cannot write {path}: above 2 GiB even without the main graph's initializers") from error


# -- weights beside the model


def _write_external(model: Model, target: Path, external: ExternalData) -> None:
    """Write the data first, then the model that refers to it.

    Data is named by its content, so that data of an older model is never overwritten. If the caller asks for another
    name, which the model at `target` uses, a version with data named by content is published in between.
    """
    asked = None if external.location is None else _place_of(model, target, external.location)
    outside = _outside(model, external)
    if not outside:  # no data file is needed
        _write_inline(model, target)
        return
    proto = without_initializers(model, set(outside))
    with Draft(asked or target) as data, Draft(target) as draft, _Sources() as sources, ExitStack() as more:
        slices = {}
        for name, tensor in outside.items():
            data.file.write(b"\0" * (-data.file.tell() % external.alignment))
            start = data.file.tell()
            slices[name] = (start, _copy(tensor.raw(), data.file, sources))
        own = _own_data(target, data)
        _locate(proto, outside, slices, external.location or own.name)
        draft.file.write(_serialized(proto, target))
        size = data.file.tell()
        final = asked or own

        def steps() -> Steps:
            if asked is None or not asked.exists() or not _is_mentioned(external.location or "", [target]):
                return [(data, final), (draft, target)]
            between, copy = more.enter_context(Draft(target)), more.enter_context(Draft(asked))
            _copy(FileSlice(data.path, 0, size), copy.file, sources)
            _locate(proto, outside, slices, own.name)
            between.file.write(_serialized(proto, target))
            return [(data, own), (between, target), (copy, asked), (draft, target)]

        _publish(model, target, steps, [(each, FileSlice(final, *slices[name])) for name, each in outside.items()])


def _outside(model: Model, external: ExternalData) -> dict[str, Tensor]:
    """The initializers whose data becomes external."""
    return {
        v.name: v.tensor
        for v in stored(model.graph)
        if v.tensor is not None
        and not v.tensor.is_opaque
        and (v.tensor.nbytes >= max(external.threshold, 1) or is_external(v.tensor))
        and element_bits(v.tensor.dtype) is not None
    }


def _place_of(model: Model, target: Path, location: str) -> Path:
    """The file that the caller asked for as external data."""
    if not is_text(location):
        raise ModelError(f"external data {location!r}: a model can only name files in UTF-8; choose another name")
    path = target.parent / location
    if Path(location).is_absolute() or not path.resolve().is_relative_to(target.parent):
        raise ModelError(f"external data {location!r} must be inside the model's folder {target.parent}")
    if path.is_dir():
        raise ModelError(f"cannot write external data {path}: it is a folder")
    if is_special(path):
        raise ModelError(f"cannot write external data {path}: it is not a file")
    place = destination(path)
    if place == target:
        raise ModelError(f"external data cannot go into the model file {target} itself")
    if place in _unread_files(model, target.parent):
        raise ModelError(f"external data {path} would replace weights that were left unread; choose another name")
    if model.path is not None and (source := model.path.resolve()) != target:
        read = {v.tensor.source.path for v in model.graph.initializers if v.tensor is not None and v.tensor.source}
        if place in read | {source}:
            raise ModelError(f"external data {path} would replace a file of {model.path}; choose another name")
    other = _other_reader(place, target) if place.exists() else None
    if other is not None:
        raise ModelError(f"external data {path} would replace the weights of {other}; choose another name")
    return place


def _other_reader(place: Path, target: Path) -> Path | None:
    """Another model in the folder of `place` or `target` that has its weights in the file `place`, if any."""
    near = [path for folder in {place.parent, target.parent} for path in sorted(folder.glob("*.onnx"))]
    for path in near:
        if _real(path) != target and _is_mentioned(place.name, [path]) and place in files_named_by(path):
            return path
    return None


def _locate(
    proto: onnx.ModelProto, tensors: Mapping[str, Tensor], slices: Mapping[str, tuple[int, int]], location: str
) -> None:
    """Put references to external data at the end of a proto's initializers, replacing earlier ones."""
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in tensors]
    del proto.graph.initializer[len(kept) :]
    for name, tensor in tensors.items():
        entry = proto.graph.initializer.add()
        entry.CopyFrom(tensor.header(name))
        entry.data_location = onnx.TensorProto.EXTERNAL
        offset, length = slices[name]
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
            entry.external_data.add(key=key, value=text)


# -- publishing of drafts, and removal of old data


Steps = list[tuple[Draft, Path]]
"""Drafts with their final names, in order of publication."""


def _publish(
    model: Model, target: Path, steps_now: Callable[[], Steps], moved: Sequence[tuple[Tensor, FileSlice]]
) -> None:
    """Rename drafts to their final names, the model last; then remove data that no model needs any more.

    Tensors whose files are replaced or removed are loaded before, or refer to the new files afterwards.

    Args:
        model: the model that is written.
        target: its file.
        steps_now: returns the drafts and names, computed while no other process writes in the folder.
        moved: tensors with their slices of the new files.
    """
    if is_special(target):
        for draft, _ in steps_now():
            draft.publish()
        return
    with alone(target.parent) as sure:
        steps, durable = steps_now(), target.exists()
        for draft, _ in steps:
            draft.file.flush()
        kept = {place for _, place in steps[-2:]} | _unread_files(model, target.parent)
        left = [place for _, place in steps if place not in kept]
        left += _outdated(target, kept) if sure else []
        gone = {*left, *(place for _, place in steps)}
        moving = {id(tensor) for tensor, _ in moved}
        for value in model.graph.initializers:
            tensor = value.tensor
            source = tensor.source if tensor is not None and id(tensor) not in moving else None
            if tensor is not None and source is not None and source.path in gone:
                tensor.hold()
        for draft, place in steps:
            draft.publish(place, durable=durable)
        for path in left:
            path.unlink(missing_ok=True)
    for tensor, found in moved:
        if tensor.source is not None and tensor.source.path in gone:
            tensor.source = found


def _own_data(target: Path, data: Draft) -> Path:
    """A name for a model's data that depends on its content."""
    import hashlib

    data.file.seek(0)
    digest = hashlib.file_digest(data.file, "sha256").hexdigest()[:16]  # type: ignore[arg-type]  # it is buffered
    return target.with_name(f"{_stem(target.name)}.{digest}.data")


def _stem(name: str) -> str:
    """A model's name, shortened to leave room in the name of its data file, and as UTF-8, which references need."""
    whole = os.fsencode(name)
    if len(whole) <= _LONGEST_STEM and is_text(name):
        return name
    import hashlib  # imports OpenSSL: only for the few names that need it

    return f"{whole[: _LONGEST_STEM - 20].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:16]}"


def _outdated(target: Path, kept: Collection[Path]) -> list[Path]:
    """Data files that were written for a model of this name, and that no file next to it mentions.

    Only files with a name by content count: data with any other name is not ours to remove.
    """
    stem = _stem(target.name)
    written = re.escape(stem) + r"\.[0-9a-f]{16}\.data"
    with os.scandir(target.parent) as entries:
        files = [Path(entry.path) for entry in entries if _may_be_file(entry) and not is_temporary(entry.name)]
    near = [path for path in files if path.name.startswith(stem) and path.name.endswith(".data")]
    old = [path for path in near if re.fullmatch(written, path.name) and path not in kept and not path.is_symlink()]
    if not old:
        return []
    others = [path for path in files if not re.fullmatch(_OWN_DATA, path.name) and _real(path) != target]
    return [path for path in old if not _is_mentioned(path.name, others)]


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is a file, or a link whose target cannot be accessed."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_mentioned(name: str, files: Iterable[Path]) -> bool:
    """Whether one of the files mentions a name; True also if a search would take long or fails."""
    left = _SEARCHED
    for path in files:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                left -= size
                if left < 0:
                    return True
                if not size:
                    continue
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as found:
                    if found.find(os.fsencode(name)) >= 0:
                        return True
        except (OSError, ValueError):
            return True
    return False


# -- copying


class _Sources(ExitStack):
    """The files that tensors are copied from, each opened once."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[Path, FileIO] = {}

    def open(self, part: FileSlice) -> FileIO:
        """The file of a slice, open for reading."""
        file = self._files.get(part.path)
        if file is None:
            try:
                file = self._files[part.path] = self.enter_context(part.opened())
            except (OSError, ValueError) as error:
                raise ModelError(f"cannot read tensor data file {part.path}: {reason_of(error)}") from error
        return file


_BY_KERNEL_FROM = 1 << 16
"""Slices of at least this many bytes are copied by the kernel; smaller ones through the file's buffer."""


def _copy(raw: bytes | memoryview | FileSlice, file: IO[bytes], sources: _Sources) -> int:
    if not isinstance(raw, FileSlice):
        file.write(raw)
        return len(raw)
    source = sources.open(raw)
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
