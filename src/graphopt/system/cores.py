"""Cores of one's own while something is timed: locks that all of a user's processes on a machine respect."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from graphopt.system.locks import try_lock

_POLL_SECONDS = 0.05


@contextmanager
def own_cores(count: int, folder: Path | None = None) -> Iterator[tuple[int, ...]]:
    """Cores that nobody else who asks for some is given; this thread, and what it starts, runs on them.

    Waits until there are enough. A machine with fewer cores gives all that it has.

    Args:
        count: how many.
        folder: where the locks are, the system's folder for temporary files when None.
    """
    cores = _usable()
    count = min(count, len(cores))
    place = _place(folder)
    while True:
        with ExitStack() as held:
            mine: list[int] = []
            for core in cores:
                if len(mine) < count and try_lock(place / f"core-{core}.lock", held):
                    mine.append(core)
            if len(mine) == count:
                with _pinned(mine):
                    yield tuple(mine)
                return
        # Who holds some and waits for more could wait for somebody who does the same.
        time.sleep(_POLL_SECONDS)


def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _place(folder: Path | None) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    place = (Path(tempfile.gettempdir()) if folder is None else folder) / f"graphopt-cores-{user}"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


@contextmanager
def _pinned(cores: list[int]) -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
