"""Models behind URLs on this machine's disk: each is fetched once for all tasks that use it, within a limit.

A model is read to determine whether it is known, and again when it is audited. The files that the first task fetched
are kept for the second one in a folder shared by all workers of a user on a machine, and deleted afterwards. A task
holds a lock on the model that it uses; unused models are evicted when others need space, oldest first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from graphopt.errors import GraphoptError
from graphopt.system import locks
from graphopt.system.files import scratch

_POLL_SECONDS = 0.05
_PATIENCE = 3600.0
"""Seconds to wait for others to free space, which they do once their model is audited."""
_MOST = 256
"""Models that are kept for a later task."""


class UnreachableError(GraphoptError):
    """A model that cannot be fetched; a retry may succeed."""


class ChangedError(GraphoptError):
    """A model whose contents differ from the expected ones."""


class CrowdedError(Exception):
    """There is no space at present."""


class Download:
    """A model's folder, which this task owns for a while.

    Args:
        path: the folder.
        limit: bytes of all downloads; half of the space that is free without them if None.
    """

    def __init__(self, path: Path, limit: int | None) -> None:
        self.path, self.limit = path, limit
        self.files = path / "files"
        self._patient = False

    def has(self, digest: str) -> bool:
        """Whether the complete contents with this digest are there."""
        with suppress(OSError):
            return digest != "" and (self.path / "digest").read_text(encoding="utf-8") == digest
        return False

    def complete(self, digest: str) -> None:
        """Mark the contents as complete, with this digest."""
        (self.path / "digest").write_text(digest, encoding="utf-8")

    def remove(self) -> None:
        """Free the space."""
        _remove(self.path)

    def fill(self, fetch: Callable[[Download], None]) -> None:
        """Fetch the contents.

        A task that finds no space frees its own and queues up. Only the first in the queue keeps its files while it
        waits, so all others finish, and free space, without depending on it.

        Args:
            fetch: fetches, and calls `ask` repeatedly.

        Raises:
            UnreachableError: no space became free.
        """
        try:
            self._afresh(fetch)
        except CrowdedError:
            self.remove()
            with _locked(self.path.parent / "queue"):
                self._patient = True
                self._afresh(fetch)

    def _afresh(self, fetch: Callable[[Download], None]) -> None:
        self.remove()
        self.files.mkdir(parents=True)
        try:
            fetch(self)
        except BaseException:
            self.remove()
            raise

    def ask(self, room: int) -> None:
        """Reserve this many bytes for all files of the model together."""
        until = time.monotonic() + _PATIENCE
        while not self._is_given(room):
            if not self._patient:
                raise CrowdedError
            if time.monotonic() > until:
                raise UnreachableError(f"no room for {_mib(room)} on this disk: other models have it")
            time.sleep(_POLL_SECONDS)

    def _is_given(self, room: int) -> bool:
        shelf = self.path.parent
        with _locked(shelf / "room"):
            others = {path: _room_of(path) for path in _folders(shelf) if path != self.path}
            limit = self.limit
            if limit is None:
                free = shutil.disk_usage(shelf).free
                limit = (free + sum(others.values()) + _room_of(self.path)) // 2
            if room > limit:
                raise UnreachableError(f"it needs {_mib(room)} of disk, and all downloads may have {_mib(limit)}")
            oldest = sorted(others, key=_age, reverse=True)
            while oldest and (sum(others.values()) + room > limit or len(others) >= _MOST):
                path = oldest.pop()
                if _gone(path):
                    del others[path]
            if sum(others.values()) + room > limit:
                return False
            (self.path / "room").write_text(str(room), encoding="utf-8")
        return True


@contextmanager
def download(name: str, limit: int | None = None) -> Iterator[Download]:
    """The folder of a model, empty or as the last task left it; no other task uses it while the block runs.

    Args:
        name: digest of its URL.
        limit: bytes of all downloads of this user on this machine; half of the free space if None.
    """
    if not locks.AVAILABLE:
        with scratch() as folder:
            yield Download(folder / name, limit)
        return
    path = _shelf() / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with _locked(_lock_of(path)):
        yield Download(path, limit)


def clear_downloads() -> None:
    """Remove all unused models."""
    for path in _folders(_shelf()):
        _gone(path)


def _shelf() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"graphopt-models-{user}"


def _folders(shelf: Path) -> list[Path]:
    return [path for path in shelf.iterdir() if path.is_dir()] if shelf.is_dir() else []


def _lock_of(path: Path) -> Path:
    # The number of locks is bounded, and they are never deleted; models that share one wait for each other.
    return path.with_name(f"lock-{path.name[:3]}")


def _gone(path: Path) -> bool:
    """Remove a model unless it is in use."""
    with ExitStack() as held:
        if not locks.try_lock(_lock_of(path), held):
            return False
        _remove(path)
        return not path.exists()


def _remove(path: Path) -> None:
    """Remove a model's folder, its files before the record of its size: once that is gone others use the space."""
    shutil.rmtree(path / "files", ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


def _room_of(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int((path / "room").read_text(encoding="utf-8"))
    return 0


def _age(path: Path) -> float:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime
    return 0.0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with ExitStack() as held:
        while not locks.try_lock(path, held):
            time.sleep(_POLL_SECONDS)
        yield


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
