"""Sources of models: files, folders, patterns, lists and everything that fsspec can open; and their digests."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from graphopt.audit.corpus.downloads import ChangedError, CrowdedError, Download, UnreachableError, download
from graphopt.audit.corpus.record import Reference, digest_of
from graphopt.errors import GraphoptError, ModelError, UsageError
from graphopt.ir.external import KEY, folders_of, locations
from graphopt.ir.files import parse, read_bytes
from graphopt.system.extras import require
from graphopt.system.given import check_text

_CHUNK = 1 << 20
_CHANGED = "its contents changed since it was read"
_STEP = 64 << 20
"""If a size is unknown, space is reserved in pieces of this many bytes."""
_LISTS = (".txt", ".lst")
_TELLING = ("etag", "md5", "md5hash", "content-md5", "checksum", "generation", "versionid", "lastmodified",
            "last-modified", "last_modified", "mtime", "updated", "created")  # fmt: skip
"""File attributes of stores that change with the contents."""


class TooLargeError(GraphoptError):
    """A model with more bytes than allowed."""


def named(sources: Iterable[str]) -> Iterator[str]:
    """Names of all models in sources.

    Args:
        sources: files, folders, patterns (`**/*.onnx`), lists (a `.txt` file with one source per line), and URLs of
            files, folders and patterns.

    Raises:
        ModelError: a source holds no model.
        UsageError: a name is not UTF-8.
    """
    for source in sources:
        found = False
        for name in _in_list(source) if source.endswith(_LISTS) else _in_source(source):
            found = True
            check_text("model", name)
            yield name
        if not found:
            raise ModelError(f"{source}: no .onnx file there")


def _in_list(path: str) -> Iterator[str]:
    for line in read_bytes(Path(path)).decode(errors="surrogateescape").splitlines():
        if line.strip() and not line.startswith("#"):
            yield from _in_source(line.strip())


def _in_source(source: str) -> Iterator[str]:
    if is_remote(source):
        yield from _remote(source)
    elif os.path.isdir(source):
        # Folders that vanish meanwhile or cannot be read contain no models.
        for folder, inner, files in os.walk(os.path.abspath(source)):
            inner.sort()
            yield from (os.path.join(folder, file) for file in sorted(files) if file.endswith(".onnx"))
    elif glob.has_magic(source) and not os.path.exists(source):
        yield from sorted(map(os.path.abspath, glob.iglob(source, recursive=True)))
    else:
        yield os.path.abspath(source)


def _remote(source: str) -> Iterator[str]:
    system, path = opened(source)
    try:
        if glob.has_magic(path):
            names = system.glob(path)
        elif not path.endswith(".onnx") and system.isdir(path):  # a web server would send the whole model to answer
            names = (name for name in system.find(path) if name.endswith(".onnx"))
        else:
            names = [path]
        yield from sorted(system.unstrip_protocol(name) for name in names)
    except OSError as error:
        raise ModelError(f"{source}: {error}") from error


def opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        UsageError: fsspec is not installed, or knows no such file system.
    """
    url_to_fs = require("fsspec.core").url_to_fs
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: {error}") from error
    return system, path


def located(known: Reference, largest: int | None = None, disk: int | None = None) -> Reference:
    """The reference with the digest of its contents; a model with an unchanged stamp is not read again.

    Args:
        known: what is known about the model.
        largest: the most bytes that it may have, including external data.
        disk: bytes that models behind URLs may occupy on this machine.

    Raises:
        UnreachableError: it cannot be fetched.
        TooLargeError: it has more bytes.
        ModelError: its external data is outside of its folder.
    """
    if is_unchanged(known):
        return known
    # Take the stamp before reading, so that a change during reading gets another one.
    before = _stamp(Reference(known.name))
    with fetched(Reference(known.name), largest, disk) as path:
        digest, files = contents(path)
    found = replace(known, digest=digest, files=files)
    stamp = _stamp(found)
    return replace(found, stamp=stamp if stamp.startswith(before) else "")


def is_unchanged(known: Reference) -> bool:
    """Whether a model that was read before still has the same stamp."""
    return bool(known.digest) and known.stamp != "" and _stamp(known) == known.stamp


def is_remote(name: str) -> bool:
    """Whether a model is behind a URL."""
    return "://" in name


@contextmanager
def fetched(reference: Reference, largest: int | None = None, disk: int | None = None) -> Iterator[Path]:
    """The model as a file on this machine, with its external data beside it, while the block runs.

    A model behind a URL without a digest is fetched, and kept for the task that comes with the digest; afterwards it is
    deleted.

    Raises:
        UnreachableError: it cannot be fetched.
        TooLargeError: it has more bytes than `largest`.
        ChangedError: its contents have another digest.
        ModelError: its external data is outside of its folder.
    """
    if not is_remote(reference.name):
        path = Path(reference.name)
        data = files_of(path) if largest is not None and path.is_file() else ()
        _check_size(sum(_local_size(path.parent / file) for file in (path.name, *data)), largest)
        if reference.digest and located(reference, largest).digest != reference.digest:
            raise ChangedError(_CHANGED)
        yield path
        return
    with download(digest_of(reference.name), disk) as found:
        path = found.files / (PurePosixPath(reference.name).name or "model.onnx")
        if not found.has(reference.digest):
            found.fill(lambda found: _fetch(reference.name, path, largest, found))
            found.complete(contents(path)[0])
            if reference.digest and not found.has(reference.digest):
                found.remove()
                raise ChangedError(_CHANGED)
        try:
            yield path
        finally:
            if reference.digest:
                found.remove()


def _fetch(url: str, path: Path, largest: int | None, into: Download) -> None:
    taken = _copy(url, path, largest, into, 0)
    base = url.rpartition("/")[0]
    for file in files_of(path):
        target = path.parent / file
        target.parent.mkdir(parents=True, exist_ok=True)
        taken = _copy(f"{base}/{file}", target, largest, into, taken)


def _copy(url: str, target: Path, largest: int | None, into: Download, taken: int) -> int:
    """Fetch one file; returns the bytes fetched so far including it."""
    try:
        system, path = opened(url)
        size = system.size(path) or 0
        _check_size(taken + size, largest)
        room = taken + size
        into.ask(room)
        with system.open(path, "rb") as source, target.open("wb") as copy:
            while chunk := source.read(_CHUNK):
                taken += len(chunk)
                _check_size(taken, largest)
                if taken > room:  # its size was unknown or wrong
                    room = taken + _STEP
                    into.ask(room)
                copy.write(chunk)
        return taken
    except (GraphoptError, CrowdedError):
        raise
    except Exception as error:  # each file system raises its own errors
        raise UnreachableError(f"{url}: {type(error).__name__}: {error}") from error


def _local_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _check_size(size: int, largest: int | None) -> None:
    if largest is not None and size > largest:
        raise TooLargeError(f"{size / 2**20:.0f} MiB, at most {largest / 2**20:.0f} MiB allowed")


def contents(path: Path) -> tuple[str, tuple[str, ...]]:
    """The digest of a model and all its files, and those files."""
    total = hashlib.sha256()
    files = files_of(path)
    for file in (path.name, *files):
        one = hashlib.sha256()
        try:
            with (path.parent / file).open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    one.update(chunk)
        except FileNotFoundError:
            if file == path.name:
                raise UnreachableError(f"{path} not found") from None
        except OSError as error:
            raise UnreachableError(f"cannot read {path.parent / file}: {error.strerror or error}") from error
        # The model's own name does not count; the names of its data files do.
        total.update(one.digest() + (b"" if file == path.name else file.encode()))
    return total.hexdigest(), files


def files_of(path: Path) -> tuple[str, ...]:
    """The files that a model refers to, if inside its folder; none if the file is not a model."""
    if not _mentions_data(path):
        return ()
    try:
        found = locations(parse(read_bytes(path), str(path)))
    except ModelError:
        return ()
    folder, allowed = path.parent.resolve(), [each.resolve() for each in folders_of(path)]
    inside = (file for file in found if file and any(map((folder / file).resolve().is_relative_to, allowed)))
    return tuple(sorted(inside))


def _mentions_data(path: Path) -> bool:
    last = b""
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                if KEY in last + chunk:
                    return True
                last = chunk[-len(KEY) :]
    except OSError:
        return False
    return False


def _stamp(reference: Reference) -> str:
    """The file system's information about a model's files, without reading them; "" if there is none."""
    base = reference.name.rpartition("/")[0]
    names = [reference.name, *(f"{base}/{file}" if base else file for file in reference.files)]
    try:
        return " ".join(map(_stamp_of, names))
    except Exception:  # each file system raises its own errors; without a stamp the file is read again
        return ""


def _stamp_of(name: str) -> str:
    if is_remote(name):
        system, path = opened(name)
        info = system.info(path)
        told = {key: str(value) for key, value in info.items() if key.lower() in _TELLING and value is not None}
        if not told:
            raise FileNotFoundError(f"{name}: nothing tells its versions apart")
        return str(sorted({**told, "size": str(info.get("size"))}.items()))
    # A user can set the modification time (mtime), but not the time of the last inode change (ctime).
    found = os.stat(name)
    return f"{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}.{found.st_ino}"
