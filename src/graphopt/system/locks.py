"""Locks on files, which end with whoever holds them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system: everybody gets what they ask for
    fcntl = None  # type: ignore[assignment]  # a module otherwise

AVAILABLE = fcntl is not None
"""Whether this system has them."""


def try_lock(path: Path, held: ExitStack) -> bool:
    """Take the lock on a file, which is made if it is not there, for as long as the stack is open.

    Returns:
        Whether it was free.
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
