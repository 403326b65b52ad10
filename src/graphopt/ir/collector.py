"""Python's cyclic garbage collector, out of the way while millions of objects are made that all stay alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
