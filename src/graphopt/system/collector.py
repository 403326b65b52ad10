"""Python's cyclic garbage collector, paused while millions of objects are created that all stay alive."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary


class _Ledger:
    """An account of the bytes of models that may be waiting for collection.

    A model contains reference cycles, so only the collector frees it, and objects made under `paused_gc` do not trigger
    a collection. Without this account, a program that optimizes many models would keep all of them.
    """

    room = 1 << 28

    def __init__(self) -> None:
        self.alive: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self.loaded = 0
        self.lock = threading.RLock()  # a finalizer may load a model during collection
        """Models may be loaded in several threads at once."""

    def add(self, model: object, size: int) -> None:
        with self.lock:
            if model not in self.alive:
                self.alive[model] = size
                self.loaded += size

    def settle(self) -> None:
        """Collect if enough was loaded; the next time only after as many bytes as are still in use."""
        with self.lock:
            if self.loaded > self.room:
                gc.collect()
                self.loaded = min(0, self.room - sum(self.alive.values()))


_ledger = _Ledger()


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause the cyclic collector: while a large graph is built or changed it would only scan live objects.

    Objects made meanwhile join the old generation unscanned; otherwise the next allocation would scan them all.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # objects that the program itself froze stay frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def make_room() -> None:
    """Free unused models, if they take enough memory; called before another model is read."""
    if gc.isenabled():
        _ledger.settle()


def weigh(model: object, size: int) -> None:
    """Record the approximate size of a model in bytes."""
    _ledger.add(model, size)
