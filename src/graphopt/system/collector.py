"""Python's cyclic garbage collector, out of the way while millions of objects are made that all stay alive."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary


class _Ledger:
    """How many bytes of models may be waiting to be collected.

    A model refers to itself in circles, so only the collector frees it, and what `paused_gc` hides from the collector
    does not make it start. Without this, a program that optimizes one model after the other would keep them all.
    """

    room = 1 << 28

    def __init__(self) -> None:
        self.alive: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self.loaded = 0
        self.lock = threading.RLock()  # what is collected may load a model as it goes
        """Models are loaded in several threads at once."""

    def add(self, model: object, size: int) -> None:
        with self.lock:
            if model not in self.alive:
                self.alive[model] = size
                self.loaded += size

    def settle(self) -> None:
        """Collect when enough was loaded; next time not before as much comes as is still in use."""
        with self.lock:
            if self.loaded > self.room:
                gc.collect()
                self.loaded = min(0, self.room - sum(self.alive.values()))


_ledger = _Ledger()


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause the cyclic collector: while a large graph is built or changed it only scans what is alive anyway.

    What was made meanwhile joins the old generation unscanned, or the first allocation afterwards would pay for it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # what the program itself froze stays frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def make_room() -> None:
    """Before another model is read: free those that nobody uses any more, when there are enough of them."""
    if gc.isenabled():
        _ledger.settle()


def weigh(model: object, size: int) -> None:
    """Note that a model takes about that many bytes."""
    _ledger.add(model, size)
