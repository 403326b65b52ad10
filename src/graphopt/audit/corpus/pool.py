"""Workers on this machine without a scheduler: threads, each of which has its work done in processes."""

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
    """What became of something submitted.

    Attributes:
        ticket: what it was submitted with.
        result: what the function returned.
        lost: why there is no result: the worker died.
        where: the machine that did it.
    """

    ticket: Any
    result: Any = None
    lost: str = ""
    where: str = ""


class Engine(Protocol):
    """Who does the work; the pool here or Dask."""

    @property
    def workers(self) -> int:
        """How many tasks run at once."""
        ...

    def kinds(self) -> list[str]:
        """The kinds of machines that work."""
        ...

    def submit(self, ticket: Any, function: Callable[..., Any], *args: Any, near: str = "") -> None:
        """Have a function called, which does not raise; on the machine named if it can be there."""
        ...

    def next(self, seconds: float) -> Answer | None:
        """The next answer; None when there is none in that time."""
        ...

    def close(self, *, now: bool = False) -> None:
        """End; with `now` whatever runs is stopped."""
        ...


class WorkerPool:
    """Workers on this machine.

    Args:
        workers: how many.
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
        """This machine's."""
        return [machine().kind]

    def submit(self, ticket: Any, function: Callable[..., Any], *args: Any, near: str = "") -> None:
        """Have a function called, which does not raise; all is done on this machine."""
        self._todo.put((ticket, function, args))

    def next(self, seconds: float) -> Answer | None:
        """The next answer; None when there is none in that time."""
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self, *, now: bool = False) -> None:
        """End; with `now` whatever runs is stopped."""
        self._stopping = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            while thread.is_alive():
                if now:
                    stop_all()  # over and over: a worker may just have started another process
                thread.join(0.05 if now else None)
        clear_downloads()

    def _work(self) -> None:
        try:
            while (job := self._todo.get()) is not None and not self._stopping:
                ticket, function, args = job
                try:
                    answer = Answer(ticket, function(*args))
                except Exception as error:  # as a worker that dies: nobody waits for it
                    answer = Answer(ticket, lost=f"{type(error).__name__}: {error}")
                self._answers.put(answer)
        finally:
            close_workshop()
