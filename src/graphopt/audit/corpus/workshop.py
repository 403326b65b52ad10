"""The process in which a model is audited: one shared by many models, or a separate one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphopt.audit.comparison import audit
from graphopt.audit.corpus.record import CorpusSettings, Status
from graphopt.errors import ModelError
from graphopt.system.child import requests, tell
from graphopt.system.processes import Child, ChildError, Limits, call

RUNNING: set[Child] = set()
"""The child processes of this process's workers, so that all can be stopped."""

_MOST_MODELS = 200
"""A shared process is replaced after this many models, to free what the runtime leaks."""


@dataclass(slots=True)
class _Shop:
    """The shared process of a thread.

    Attributes:
        child: the process.
        settings: the settings that it was made for.
        models: how many models it has audited.
        busy: whether it audits one at present.
    """

    child: Child
    settings: CorpusSettings
    models: int = 0
    busy: bool = False


_shops: dict[int, _Shop] = {}
"""By thread identifier."""


@dataclass(slots=True)
class Attempt:
    """An audit in progress, and its outcome.

    Attributes:
        status: the status for the record.
        how: the error.
        at: the present activity: the contestant and the stage.
        tries: how each attempt failed.
        audit: the result.
    """

    status: Status = "done"
    how: str = ""
    at: str = ""
    tries: list[str] = field(default_factory=list)
    audit: dict[str, Any] | None = None

    def hear(self, message: dict[str, Any]) -> None:
        """Record a message of the process."""
        self.at = message.get("at", self.at)


def limits_of(settings: CorpusSettings, contestants: int) -> Limits:
    """The limits of a whole audit: all optimizers' time limits, as much again for the oracle, and the measurements."""
    timing = len(settings.threads) * 2 * settings.budget if settings.timed else 0.0
    seconds = settings.seconds * (2 * contestants + 1) + timing
    return Limits(seconds) if settings.memory is None else Limits(seconds, settings.memory)


def apart(path: Path, settings: CorpusSettings, attempt: Attempt) -> None:
    """Audit a model in a separate process, and each contestant in a child process of that.

    Raises:
        GraphoptError: the model cannot be audited.
        ChildError: the process died or exceeded a limit.
    """
    limits = limits_of(settings, len(settings.levels) + len(settings.against))
    attempt.audit = call(_audit, str(path), settings, True, limits=limits, heard=attempt.hear, among=RUNNING)


def together(path: Path, settings: CorpusSettings, attempt: Attempt) -> None:
    """Audit a model in this thread's process, which is reused for the next.

    Raises:
        ModelError: the model cannot be audited.
        ChildError: the process died or exceeded a limit.
    """
    shop = _shops.get(threading.get_ident())
    if shop is None or shop.models >= _MOST_MODELS or shop.settings != settings:
        close_workshop()
        shop = _shops[threading.get_ident()] = _Shop(Child(_serve, settings), settings)
        RUNNING.add(shop.child)
        shop.child.hear()  # its imports are done, and count for no model
    shop.busy, shop.models = True, shop.models + 1
    # A model that takes longer than one optimizer may is retried in a separate process.
    shop.child.restrict(limits_of(settings, 0))
    message = shop.child.ask(path=str(path))
    while message is not None and "audit" not in message and "error" not in message:
        attempt.hear(message)
        message = shop.child.hear()
    shop.busy = False
    if message is None:
        close_workshop()
        shop.child.result()  # raises its error
        raise ChildError("ended unexpectedly")
    if "error" in message:
        raise ModelError(message["error"])
    attempt.audit = message["audit"]


def close_workshop() -> None:
    """End this thread's process, if it has one."""
    _close(threading.get_ident())


def close_idle() -> None:
    """End the processes of idle threads."""
    for thread, shop in list(_shops.items()):
        if not shop.busy:
            _close(thread)


def _close(thread: int) -> None:
    shop = _shops.pop(thread, None)
    if shop is not None:
        RUNNING.discard(shop.child)
        shop.child.close()


def stop_all() -> None:
    """Stop every process of this process's workers; their callers get an error."""
    for child in list(RUNNING):
        child.stop()


def _audit(path: str, settings: CorpusSettings, isolate: bool) -> dict[str, Any]:
    limits = Limits(settings.seconds) if settings.memory is None else Limits(settings.seconds, settings.memory)
    found = audit(
        path, None, settings.levels, settings.against, threads=settings.threads, rounds=settings.rounds,
        budget=settings.budget, starts=settings.starts, shapes=settings.shapes, dims=settings.dims,
        verify=settings.verify, numerics=settings.numerics, target=settings.target or None, seed=settings.seed,
        limits=limits, timed=settings.timed, isolate=isolate, progress=lambda what, part: tell(at=what),
    )  # fmt: skip
    return found.to_dict()


def _serve(settings: CorpusSettings) -> None:
    import onnxruntime  # noqa: F401 -- before the first model, whose time it would count as

    settings.check()
    tell(ready=True)
    for request in requests():
        try:
            tell(audit=_audit(request["path"], settings, isolate=False))
        except (ModelError, RecursionError) as error:
            tell(error=str(error))
