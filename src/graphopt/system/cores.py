"""Exclusive cores for timing: locks that all graphopt processes of a user on a machine respect."""

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
    """Reserve cores among all users of this function; this thread, and all that it starts, runs on them.

    Waits until enough cores are free. On a machine with fewer cores, all of them are reserved.

    Args:
        count: number of cores.
        folder: the folder of the locks; the system's folder for temporary files if None.
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
        # All locks are released before waiting: two processes that each hold some would deadlock.
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
