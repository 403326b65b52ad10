"""The one task of an audit of many models: `audit_one`. It can be pickled, and it never raises."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.audit.corpus.downloads import ChangedError
from graphopt.audit.corpus.record import CorpusSettings, Record, Reference, digest_of
from graphopt.audit.corpus.sources import TooLargeError, fetched, is_remote, is_unchanged, located
from graphopt.audit.corpus.versions import versions
from graphopt.audit.corpus.workshop import Attempt, apart, together
from graphopt.audit.machine import Machine
from graphopt.errors import GraphoptError
from graphopt.system.cores import own_cores
from graphopt.system.processes import ChildError

_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))


def audit_one(reference: Reference, settings: CorpusSettings, disk: int | None = None) -> Record:
    """Audit one model; every outcome is a record.

    If nothing is timed, graphopt's levels and the oracle share a process with those of other models, which takes a
    tenth of the time for small models. If that process dies or exceeds a limit, the model is retried with a process
    for each contestant, which shows whose fault it was. Timed audits always run in separate processes, on cores that
    no other timed audit of this user on this machine uses.

    Args:
        reference: the model; without a digest it is read first.
        settings: how to audit it.
        disk: bytes that models behind URLs may occupy on this machine; half of the free space if None.

    Returns:
        The record. A model that failed twice, or that cannot be read, is settled; errors of the machine (a full disk, a
        model out of reach or changed meanwhile) are not.
    """
    began = time.perf_counter()
    machine()  # before this thread is bound to some of its cores
    try:
        if not reference.digest:
            reference = located(reference, settings.largest, disk)
        with fetched(reference, settings.largest, disk) as path, _cores(settings):
            attempt = _audited(path, reference.name, settings)
    except Exception as error:  # one error must not end a run of thousands
        attempt = _trouble(error)
    kind = machine().kind if settings.timed else ""
    record = _record(reference, attempt, time.perf_counter() - began, kind)
    return replace(record, versions=digest_of(versions(settings.against)))


def locate_all(known: Sequence[Reference], largest: int | None) -> list[Reference | Record]:
    """The digest of each model; a record for one that cannot be read.

    Models behind URLs are not fetched: a changed one is returned without a digest.
    """
    return [_unread(each) if is_remote(each.name) else locate_one(each, largest) for each in known]


def locate_one(known: Reference, largest: int | None, disk: int | None = None) -> Reference | Record:
    """The digest of a model; a record if it cannot be read."""
    try:
        return located(known, largest, disk)
    except Exception as error:
        return _record(Reference(known.name), _trouble(error))


def _unread(known: Reference) -> Reference:
    return known if is_unchanged(known) else Reference(known.name)


def _record(reference: Reference, attempt: Attempt, seconds: float = 0.0, kind: str = "") -> Record:
    return Record(
        reference.digest or digest_of(reference.name), reference.name, attempt.status, attempt.how, attempt.at,
        tuple(attempt.tries), seconds, kind, machine().to_dict(), attempt.audit,
    )  # fmt: skip


def _trouble(error: Exception) -> Attempt:
    """The status of a model that could not be read, or of an error of the machine."""
    if isinstance(error, TooLargeError):
        return Attempt("too large", str(error))
    if isinstance(error, ChangedError):
        return Attempt("changed", str(error))
    if isinstance(error, GraphoptError):
        return Attempt("disk" if _is_full(str(error)) else "unreachable", str(error))
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return Attempt("disk" if _is_full(str(error)) else "unreachable", f"{error.strerror or error}{place}")
    return Attempt("failed", f"{type(error).__name__}: {error}")


def _audited(path: Path, name: str, settings: CorpusSettings) -> Attempt:
    """Audit in at most two attempts."""
    ways = (apart, apart) if settings.timed else (together, apart)
    found = Attempt()
    for way in ways:
        try:
            way(path, settings, found)
        except ChildError as error:
            found.status, found.how = error.status, str(error)
            found.tries.append(found.how)
            continue
        except GraphoptError as error:
            found.status, found.how = "failed", str(error).replace(str(path), name)
        else:
            found.status, found.how = "done", next(filter(_is_full, _messages(found)), "")
        break
    if _is_full(found.how):
        found.status, found.audit = "disk", None
    return found


def _messages(attempt: Attempt) -> Iterator[str]:
    return (row["message"] for row in attempt.audit["rows"]) if attempt.audit is not None else iter(())


def _is_full(message: str) -> bool:
    # A child's exception arrives as text.
    return any(text in message for text in _FULL)


def _cores(settings: CorpusSettings) -> Any:
    return own_cores(max(settings.threads)) if settings.timed else nullcontext()


@lru_cache(maxsize=1)
def machine() -> Machine:
    """This machine."""
    return Machine.here()
