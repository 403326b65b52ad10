"""Dask as the engine: a scheduler distributes tasks to workers on this machine or on several."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import queue
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from graphopt.audit.corpus.downloads import clear_downloads
from graphopt.audit.corpus.pool import Answer
from graphopt.audit.corpus.task import machine
from graphopt.audit.corpus.workshop import close_idle, stop_all
from graphopt.errors import ModelError
from graphopt.system.extras import require

_COUNT_SECONDS = 5.0
_CONNECT_SECONDS = 10.0
_MOST_AT_ONCE = 100
_PATIENCE = 60.0
"""Seconds to wait for the first worker, or for an answer that is known to be available."""


class Fleet:
    """Workers of Dask.

    If a worker dies, its task is lost and the run submits it again. If the scheduler goes away, all its tasks are lost
    in the same way, and submitted to the one that comes back at its address.

    Args:
        workers: how many to start on this machine, if no scheduler is given.
        scheduler: address of a running scheduler, like `tcp://host:8786`; its workers run one task at a time each if
            they were started with `--nthreads 1`.

    Raises:
        UsageError: Dask is not installed.
        ModelError: there is no such scheduler, or it has no workers.
    """

    def __init__(self, workers: int = 1, scheduler: str | None = None) -> None:
        distributed, dask = require("distributed"), require("dask")
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._stack = contextlib.ExitStack()
        self._answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._ready: deque[Answer] = deque()
        self._numbers = itertools.count()
        # The run decides about retries, since it counts them.
        self._stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
        try:
            if scheduler is None:
                cluster = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
                )
                self._stack.callback(cluster.close)
            self._client = distributed.Client(scheduler or cluster, timeout=_CONNECT_SECONDS, set_as_default=False)
            self._stack.callback(self._client.close)
            self._client.wait_for_workers(1, timeout=_PATIENCE)
            if scheduler is None:
                # Ctrl-C reaches the whole process group, and is handled by the process that submits the work.
                self._client.register_worker_callbacks(_ignore_interrupts)
            self.dashboard = str(self._client.dashboard_link)
        except (OSError, ValueError, RuntimeError) as error:
            self._stack.close()
            raise ModelError(f"{scheduler or 'Dask on this machine'}: {error}") from error
        self._workers, self._counted = workers, -math.inf

    @property
    def workers(self) -> int:
        """The number of concurrent tasks; workers come and go."""
        if time.monotonic() > self._counted + _COUNT_SECONDS:
            with contextlib.suppress(Exception):  # the scheduler may be away
                self._workers = sum(self._client.nthreads().values()) or 1
            self._counted = time.monotonic()
        return self._workers

    def kinds(self) -> list[str]:
        """The kinds of machines among the workers."""
        return sorted(set(self._client.run(_kind).values()))

    def submit(self, ticket: Any, function: Callable[..., Any], *args: Any, near: str = "") -> None:
        """Call a function, which does not raise, in a worker; on the given machine if possible."""
        future = self._client.submit(
            _told, function, *args, key=f"{function.__name__}-{next(self._numbers)}", pure=False,
            workers=[near] if near else None, allow_other_workers=bool(near),
        )  # fmt: skip
        future.add_done_callback(lambda done: self._answers.put((ticket, done)))

    def next(self, seconds: float) -> Answer | None:
        """The next answer; None if there is none within that time."""
        if not self._ready:
            self._take(seconds)
        return self._ready.popleft() if self._ready else None

    def _take(self, seconds: float) -> None:
        """Fetch all finished results at once, since each request is a round trip to the scheduler."""
        try:
            done = [self._answers.get(timeout=seconds)]
        except queue.Empty:
            return
        with contextlib.suppress(queue.Empty):
            while len(done) < _MOST_AT_ONCE:
                done.append(self._answers.get_nowait())
        futures = [future for _, future in done]
        try:
            results = self._client.gather(futures)
        except (CancelledError, Exception):  # one of them was lost
            self._ready.extend(_answer(ticket, future) for ticket, future in done)
        else:
            self._ready.extend(
                Answer(ticket, result, where=where)
                for (ticket, _), (result, where) in zip(done, results, strict=True)
            )  # fmt: skip
        for future in futures:
            future.release()

    def close(self, *, now: bool = False) -> None:
        """Shut down; with `now` running tasks are stopped."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        with contextlib.suppress(Exception):  # workers that are gone need not be told
            self._client.run(_stop_all if now else _close_idle, wait=False)
        with contextlib.suppress(Exception):
            self._stack.close()


def _answer(ticket: Any, future: Any) -> Answer:
    try:
        result, where = future.result(timeout=_PATIENCE)
        return Answer(ticket, result, where=where)
    except (CancelledError, Exception) as error:  # a killed worker, a scheduler that went away
        return Answer(ticket, lost=f"{type(error).__name__}: {error}")


def _told(function: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """The result of a function, and the machine that called it, as the scheduler names it."""
    host = require("distributed.comm").get_address_host(require("distributed").get_worker().address)
    return function(*args), host


def _kind() -> str:
    return machine().kind


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


async def _stop_all() -> None:  # must be a coroutine, since it is not awaited
    stop_all()
    clear_downloads()


async def _close_idle() -> None:
    close_idle()
    clear_downloads()
