"""Audits side by side: many may optimize at once, but while one is timed nothing else runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoTurns:
    """For an audit that runs by itself."""

    @contextmanager
    def working(self) -> Iterator[None]:
        """While optimizing and checking."""
        yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """While timing."""
        yield


class Turns(NoTurns):
    """Takes turns with every other audit of this user on this machine, through a lock on a file."""

    def __init__(self) -> None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.path = Path(tempfile.gettempdir()) / f"graphopt-audit-{user}.lock"

    @contextmanager
    def working(self) -> Iterator[None]:
        """Wait until nobody is timed; then others may work, too."""
        with self._held(exclusive=False):
            yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Wait until nobody else works or is timed."""
        with self._held(exclusive=True):
            yield

    @contextmanager
    def _held(self, *, exclusive: bool) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:  # no such locks on this system: audits go on side by side
            yield
            return
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
