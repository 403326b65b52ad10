"""Locks on files, which end with the process that holds them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system: every request succeeds
    fcntl = None  # type: ignore[assignment]  # a module otherwise

AVAILABLE = fcntl is not None
"""Whether this system has such locks."""


def try_lock(path: Path, held: ExitStack) -> bool:
    """Lock a file, which is created if necessary, until the stack is closed.

    Returns:
        Whether the lock was free.
    """
    file = path.open("a")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
    held.callback(file.close)
    return True
