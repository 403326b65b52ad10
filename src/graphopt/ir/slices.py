"""Slices of files with tensor data, which are read on demand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from io import FileIO
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np

from graphopt.errors import ModelError, reason_of
from graphopt.records import dataclass

_READ_LIMIT = 1 << 22
"""Slices of files up to this many bytes are read instead of mapped."""

_MOST_MAPS = 256
"""The most slices that are mapped at a time, since each map keeps a file descriptor open; others are read."""

_maps: WeakSet[mmap] = WeakSet()


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A run of bytes in a file.

    Attributes:
        path: the file.
        offset: first byte.
        length: number of bytes.
        stamp: size and modification time of the file when the model was loaded; None if nothing can have replaced it.
    """

    path: Path
    offset: int
    length: int
    stamp: tuple[int, int] | None = field(default=None, compare=False)

    def opened(self) -> FileIO:
        """The file, open for reading.

        Raises:
            OSError: it cannot be opened.
            ValueError: it changed after the model was loaded.
        """
        file = FileIO(self.path)
        if self.stamp not in (None, stamp_of(file)):
            file.close()
            raise ValueError("it changed after the model was loaded")
        return file

    @property
    def is_there(self) -> bool:
        """Whether the file can be opened, and is unchanged since the model was loaded."""
        try:
            self.opened().close()
        except (OSError, ValueError):
            return False
        return True

    def view(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes, read-only: a memory map if there are many; mapping a few costs as much as reading them."""
        with self._told():
            if self.length > _READ_LIMIT and len(_maps) < _MOST_MAPS:
                with suppress(OSError):  # the file system supports no maps
                    return self._mapped()
            return np.frombuffer(self.pieces((0,), self.length)[0], np.uint8)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn errors of reading into a `ModelError` that states which bytes of which file, and why."""
        try:
            yield
        except (OSError, ValueError) as error:
            where = f"{self.length} bytes at {self.offset} of tensor data file {self.path}"
            raise ModelError(f"cannot read {where}: {reason_of(error)}") from error

    def _mapped(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        before = self.offset % ALLOCATIONGRANULARITY
        with self.opened() as file:
            made = mmap(file.fileno(), before + self.length, access=ACCESS_READ, offset=self.offset - before)
        _maps.add(made)
        return np.frombuffer(made, np.uint8, self.length, before)

    def read_into(self, target: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Read the bytes into an array of the same length.

        Raises:
            ModelError: the file cannot be read, or is too short.
        """
        with self._told():
            with self.opened() as file:
                file.seek(self.offset)
                size = file.readinto(target)  # type: ignore[arg-type]  # NumPy's arrays are buffers
            if size != self.length:
                raise ValueError(f"the file ends after {size} of them")

    def chunks(self, length: int, every: int) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        """Chunks of the bytes, each in an array that the next chunk overwrites.

        Args:
            length: the length of a chunk; the last may be shorter.
            every: one chunk in `every` is read, starting with the first.

        Raises:
            ModelError: the file cannot be read, or is too short.
        """
        room = np.empty(min(length, self.length), np.uint8)
        with self._told(), self.opened() as file:
            for start in range(0, self.length, length * every):
                part = room[: min(length, self.length - start)]
                file.seek(self.offset + start)
                if file.readinto(part) != part.size:  # type: ignore[arg-type]  # NumPy's arrays are buffers
                    raise ValueError("the file ends before")
                yield part

    def pieces(self, places: Iterable[int], length: int) -> list[bytes]:
        """`length` bytes from each of several offsets.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is too short.
        """
        found = []
        with self.opened() as file:
            for place in places:
                file.seek(self.offset + place)
                found.append(file.read(length))
                if len(found[-1]) != length:
                    raise ValueError(f"the file ends after {len(found[-1])} of them")
        return found


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is a view of a mapped file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and base.obj in _maps


def stamp_of(file: IO[bytes]) -> tuple[int, int]:
    """Size and modification time, which tell a file's contents from earlier ones."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def whole_file(path: Path) -> FileSlice | None:
    """All bytes of a file in its current state; None if it cannot be opened, or read twice, as a pipe."""
    try:
        if not path.is_file():
            return None
        with FileIO(path) as file:
            stamp = stamp_of(file)
    except (OSError, ValueError):
        return None
    return FileSlice(path.absolute(), 0, stamp[0], stamp)
