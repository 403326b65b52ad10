"""Workers on this machine without a scheduler: threads that run their work in child processes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from graphopt.audit.corpus.downloads import clear_downloads
from graphopt.audit.corpus.task import machine
from graphopt.audit.corpus.workshop import close_workshop, stop_all


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a submitted task.

    Attributes:
        ticket: the ticket that it was submitted with.
        result: the result of the function.
        lost: why there is no result: the worker died.
        where: the machine that ran it.
    """

    ticket: Any
    result: Any = None
    lost: str = ""
    where: str = ""


class Engine(Protocol):
    """Runs tasks: the pool in this module, or Dask."""

    @property
    def workers(self) -> int:
        """The number of concurrent tasks."""
        ...

    def kinds(self) -> list[str]:
        """The kinds of machines among the workers."""
        ...

    def submit(self, ticket: Any, function: Callable[..., Any], *args: Any, near: str = "") -> None:
        """Call a function, which does not raise, in a worker; on the given machine if possible."""
        ...

    def next(self, seconds: float) -> Answer | None:
        """The next answer; None if there is none within that time."""
        ...

    def close(self, *, now: bool = False) -> None:
        """Shut down; with `now` running tasks are stopped."""
        ...


class WorkerPool:
    """Workers on this machine.

    Args:
        workers: their number.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._todo: queue.SimpleQueue[tuple[Any, Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._stopping = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def kinds(self) -> list[str]:
        """The kind of this machine."""
        return [machine().kind]

    def submit(self, ticket: Any, function: Callable[..., Any], *args: Any, near: str = "") -> None:
        """Call a function, which does not raise, on this machine."""
        self._todo.put((ticket, function, args))

    def next(self, seconds: float) -> Answer | None:
        """The next answer; None if there is none within that time."""
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self, *, now: bool = False) -> None:
        """Shut down; with `now` running tasks are stopped."""
        self._stopping = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            while thread.is_alive():
                if now:
                    stop_all()  # repeatedly: a worker may just have started another process
                thread.join(0.05 if now else None)
        clear_downloads()

    def _work(self) -> None:
        try:
            while (job := self._todo.get()) is not None and not self._stopping:
                ticket, function, args = job
                try:
                    answer = Answer(ticket, function(*args))
                except Exception as error:  # like the death of a worker, since no caller waits here
                    answer = Answer(ticket, lost=f"{type(error).__name__}: {error}")
                self._answers.put(answer)
        finally:
            close_workshop()
