"""Files: written atomically, to the target of links, and without leftovers of killed runs.

Temporary files and folders have recognizable names (`.graphopt-….tmp`) and are locked while their process lives.
The lock ends with the process, however that ends, and the next run removes those that are not locked.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Self

from graphopt.errors import GraphoptError, ModelError, reason_of

_lock: Callable[[int, int], None] | None
try:
    import fcntl
except ImportError:  # no such locks on this system: files of killed runs are not removed
    _lock = None
else:
    _lock = fcntl.flock

_TEMPORARY = r"\.graphopt-\d+-[0-9a-f]{8}\.tmp"
_LOCK_SECONDS = 60.0
_READER_SECONDS = 10.0
_POLL_SECONDS = 0.02
_CANNOT_RENAME = (errno.EBUSY, errno.EXDEV)  # a file that is mounted by itself, as containers do


def _name() -> str:
    return f".graphopt-{os.getpid()}-{os.urandom(4).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file or folder of graphopt."""
    return name.startswith(".graphopt-") and re.fullmatch(_TEMPORARY, name) is not None


# -- targets of names


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the system into a `ModelError` that states which file cannot be written."""
    try:
        yield
    except GraphoptError:
        raise
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot write {path}: {reason_of(error)}") from error


def is_special(path: Path) -> bool:
    """Whether a name leads to a target that is written into and never replaced: a device, a pipe, an open file.

    Raises:
        ModelError: it leads to a folder, a disk, a socket or in circles, where no file can be written.
    """
    with naming(path):
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            return False
    if stat.S_ISDIR(mode):
        raise ModelError(f"cannot write {path}: it is a folder")
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise ModelError(f"cannot write {path}: it is a {'disk' if stat.S_ISBLK(mode) else 'socket'}")
    if not stat.S_ISREG(mode):
        return True
    # The target of /dev/stdout may be a file that has no name any more.
    return not os.path.exists(os.path.realpath(path))


def destination(path: Path) -> Path:
    """The file to write for a name, after all links are followed; it need not exist.

    Raises:
        ModelError: no file can be written there.
    """
    if is_special(path):
        return path
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise ModelError(f"cannot write {path}: folder {real.parent} not found")
    if real.exists() and not os.access(real, os.W_OK):
        raise ModelError(f"cannot write {path}: it is read-only")
    if not os.access(real.parent, os.W_OK | os.X_OK):  # the draft is created there
        raise ModelError(f"cannot write {path}: folder {real.parent} is read-only")
    return real


# -- drafts


class Draft:
    """A temporary file next to its target, until it is published; used in a `with` statement.

    Args:
        target: a result of `destination`.

    Attributes:
        file: the open file, to write to.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        special = is_special(target)
        folder = _usual_folder() if special else target.parent
        clear(folder)
        self.path, handle = _create(folder, 0o600 if special or target.exists() else 0o666)
        self.file: IO[bytes] = os.fdopen(handle, "w+b")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # buffered data may again not fit on the disk
            self.file.close()
        self.path.unlink(missing_ok=True)

    def publish(self, target: Path | None = None, *, durable: bool | None = None) -> None:
        """Rename the file to its target, or to another path in the same folder.

        An existing file is replaced atomically; its owner and permissions are kept. A new file at another path gets
        those of the target: everyone who may read a model may read its data.

        Args:
            target: the other path.
            durable: whether to flush it to disk before; if None, only if it replaces a file.
        """
        target = self.target if target is None else target
        self.file.flush()
        if is_special(target):
            self._pour(target)
            return
        replaces = target.exists()
        like = target if replaces else self.target
        found = like.stat() if like.exists() else None
        if found is not None and hasattr(os, "fchown"):
            if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(OSError):
                    os.fchown(self.file.fileno(), found.st_uid, found.st_gid)
            os.fchmod(self.file.fileno(), stat.S_IMODE(found.st_mode))
        durable = replaces if durable is None else durable
        if durable:
            os.fsync(self.file.fileno())
        if os.name == "nt":
            self.file.close()
        try:
            os.replace(self.path, target)
        except OSError as error:
            if error.errno not in _CANNOT_RENAME:
                raise
            self._pour(target)
            return
        if durable and _lock is not None:
            handle = os.open(target.parent, os.O_RDONLY)
            with suppress(OSError):  # not every system can sync folders
                os.fsync(handle)
            os.close(handle)

    def _pour(self, target: Path) -> None:
        """Write the contents into the existing target."""
        with _opened(target) as into, self.path.open("rb") as contents:
            while piece := contents.read(1 << 20):
                into.write(piece)


def _create(parent: Path, mode: int = 0o600, *, folder: bool = False) -> tuple[Path, int]:
    """A new file or folder, open and locked, with the system's default permissions.

    Before it is locked another run may consider it abandoned and remove it: then it is created again.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = parent / _name()
        with suppress(FileExistsError):
            if folder:
                path.mkdir(mode=0o700)
                if _lock is None:
                    return path, os.open(os.devnull, os.O_RDONLY)  # folders cannot be opened here
            try:
                handle = os.open(path, os.O_RDONLY if folder else flags, mode)
            except FileNotFoundError:
                if folder:
                    continue
                raise
            if not _is_lost(handle):
                return path, handle
            os.close(handle)


def _is_lost(handle: int) -> bool:
    """Lock a new file or folder; returns whether another run considers it abandoned, and removes or removed it."""
    if _lock is None:
        return False
    try:
        _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # this file system has no locks
        return False
    return not os.fstat(handle).st_nlink


def _opened(path: Path) -> IO[bytes]:
    """Open an existing target for writing; waits some time for the reader of a pipe."""
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return path.open("wb")
    until = time.monotonic() + _READER_SECONDS
    while True:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > until:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            os.set_blocking(handle, True)
            return os.fdopen(handle, "wb")


@contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that gets its name when the block ends; if the block raises, the old file is unchanged.

    Raises:
        ModelError: it cannot be written.
    """
    with naming(path), Draft(destination(Path(path))) as draft:
        yield draft.file
        draft.publish()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically.

    Raises:
        ModelError: it cannot be written.
    """
    with written(path) as file:
        file.write(text.encode())


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Lock a folder against other runs of graphopt while several of its files are renamed; False if that fails.

    A folder of `scratch` is not locked: the run that created it holds its lock, and children would wait for their
    parent.
    """
    if _lock is None or is_temporary(folder.name):
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while not (held := _is_held(handle)) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        yield held
    finally:
        os.close(handle)


# -- temporary folders, and leftovers of killed runs


@contextmanager
def scratch(beside: Path | None = None) -> Iterator[Path]:
    """A temporary folder that is removed when the block ends.

    Args:
        beside: the folder to create it in; the system's folder for temporary files if None.
    """
    import shutil  # before the block: nothing can be imported when the block ends at Python's exit

    parent = _usual_folder() if beside is None else beside
    clear(parent)
    path, handle = _create(parent, folder=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _usual_folder() -> Path:
    """The system's folder for temporary files."""
    import tempfile  # it imports readers of archives, which most runs do not need

    return Path(tempfile.gettempdir())


def _remove_tree(path: Path) -> None:
    """Remove a folder, as far as possible."""
    import shutil  # see above

    shutil.rmtree(path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file, link or folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        _remove_tree(path)
    else:
        path.unlink(missing_ok=True)


@lru_cache(maxsize=64)
def clear(folder: Path) -> None:
    """Remove leftovers of this user's killed runs in a folder; done once per process."""
    if _lock is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_temporary(entry.name):
                _remove_abandoned(Path(entry.path))


def _remove_abandoned(path: Path) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or not _is_held(handle):
                return
            if stat.S_ISDIR(found.st_mode):
                _remove_tree(path)
            elif stat.S_ISREG(found.st_mode):
                path.unlink()
        finally:
            os.close(handle)


def _is_held(handle: int) -> bool:
    """Lock an open file or folder; False if it is already locked, or the system has no locks."""
    if _lock is None:
        return False
    try:
        _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
