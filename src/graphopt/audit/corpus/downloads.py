"""Models behind URLs on this machine's disk: each is fetched once for all that is done with it, within a limit.

A model is read to find out whether it is known, and once more when it is audited. What the first task fetched stays for
the second one in a folder that all workers of a user on a machine share, and goes after that. Whoever uses a model
holds a lock; models that nobody uses give way when others need room, the oldest first.
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
"""Seconds in which others may give room: they give it when their model is audited."""
_MOST = 256
"""Models that are kept for a task to come."""


class UnreachableError(GraphoptError):
    """A model that cannot be fetched: another try may reach it."""


class ChangedError(GraphoptError):
    """A model whose contents are not those that it was to have."""


class CrowdedError(Exception):
    """There is no room now."""


class Download:
    """A model's folder, which is this task's alone for a while.

    Args:
        path: the folder.
        limit: bytes that all downloads may have; half of what is free without them when None.
    """

    def __init__(self, path: Path, limit: int | None) -> None:
        self.path, self.limit = path, limit
        self.files = path / "files"
        self._patient = False

    def has(self, digest: str) -> bool:
        """Whether the contents with a digest are there, complete."""
        with suppress(OSError):
            return digest != "" and (self.path / "digest").read_text(encoding="utf-8") == digest
        return False

    def complete(self, digest: str) -> None:
        """The contents are complete, and have this digest."""
        (self.path / "digest").write_text(digest, encoding="utf-8")

    def remove(self) -> None:
        """Give the room back."""
        _remove(self.path)

    def fill(self, fetch: Callable[[Download], None]) -> None:
        """Fetch the contents.

        Whoever finds no room gives back what it has and queues up. Only the first in the queue keeps what it has while
        it waits, so all others come to an end, and give room, without it.

        Args:
            fetch: does it, and calls `ask` as it goes.

        Raises:
            UnreachableError: there will be no room.
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
        """Have room for so many bytes: all of its files together."""
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
    """The folder of a model, empty or as the last task left it; nobody else uses it for as long as the block runs.

    Args:
        name: digest of its URL.
        limit: bytes that all downloads of this user on this machine may have; half of what is free when None.
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
    """Remove what nobody uses."""
    for path in _folders(_shelf()):
        _gone(path)


def _shelf() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"graphopt-models-{user}"


def _folders(shelf: Path) -> list[Path]:
    return [path for path in shelf.iterdir() if path.is_dir()] if shelf.is_dir() else []


def _lock_of(path: Path) -> Path:
    # There is a bounded number of locks, which stay; models that share one wait for each other.
    return path.with_name(f"lock-{path.name[:3]}")


def _gone(path: Path) -> bool:
    """Remove a model unless somebody uses it."""
    with ExitStack() as held:
        if not locks.try_lock(_lock_of(path), held):
            return False
        _remove(path)
        return not path.exists()


def _remove(path: Path) -> None:
    """Remove a model's folder, what it holds before the note of its room: others take the room once that is gone."""
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
