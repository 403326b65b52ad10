"""An audit of many models: new models are submitted to an engine, and each answer is stored as it comes."""

from __future__ import annotations

import itertools
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from graphopt.audit.columns import duration
from graphopt.audit.corpus.pool import Answer, Engine, WorkerPool
from graphopt.audit.corpus.record import OF_THE_MODEL, CorpusSettings, Record, Reference, digest_of
from graphopt.audit.corpus.sources import is_remote, named
from graphopt.audit.corpus.store import Campaign, Store
from graphopt.audit.corpus.task import audit_one, locate_all, locate_one
from graphopt.audit.corpus.versions import versions
from graphopt.errors import ModelError, UsageError
from graphopt.printable import counted
from graphopt.system.given import check_text

Progress = Callable[[str, float], None]
Shard = tuple[int, int]

_AHEAD = 3
"""Submitted tasks per worker: enough that no worker waits, few enough that stopping loses little."""
_BATCH = 32
_POLL_SECONDS = 0.2
_MOST_LOST = 3
_MOST_TROUBLES = 25
"""The run stops after this many machine errors in a row: with a full disk it would go through a whole corpus."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A task for a worker.

    Attributes:
        function: the function to call.
        args: its arguments.
        take: handles the answer; may return further tasks, which are submitted first.
        near: the machine that already has the required files.
        losses: how many workers died with it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    take: Callable[[Answer], Iterator[_Task]]
    near: str = ""
    losses: int = 0


@dataclass(slots=True)
class CorpusOutcome:
    """The outcome of a run.

    Attributes:
        release: the name of the campaign in reports.
        listed: the number of names in the sources.
        models: the number of distinct models among them.
        reused: the number of models with an existing record.
        statuses: the number of new records with each status.
        lost: how often a worker was lost with its task.
        seconds: duration of the run.
        stopped: whether it was interrupted.
    """

    release: str = ""
    listed: int = 0
    models: int = 0
    reused: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    seconds: float = 0.0
    stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        # `asdict` would count a counter's (key, count) pairs.
        return {**asdict(replace(self, statuses=Counter())), "statuses": dict(self.statuses)}

    @property
    def new(self) -> int:
        """The number of records that this run made."""
        return self.statuses.total()

    @property
    def unsettled(self) -> int:
        """The number of models without a result, because of their location or machine; the next run retries them."""
        return sum(number for status, number in self.statuses.items() if status not in OF_THE_MODEL)

    def __str__(self) -> str:
        statuses = ", ".join(f"{number:,} {status}" for status, number in self.statuses.most_common()) or "none"
        lost = f"; {self.lost} tasks of lost workers given out again" if self.lost else ""
        stopped = "; stopped before the end" if self.stopped else ""
        return (
            f"{self.release}: {counted(self.models, 'model')}, {self.reused:,} of them in the store; "
            f"new: {statuses}; {duration(self.seconds)}{lost}{stopped}"
        )


def run_corpus(
    sources: Iterable[str], store: str | Path, settings: CorpusSettings | None = None, *, jobs: int = 1,
    engine: Callable[[], Engine] | None = None, release: str = "", shard: Shard = (1, 1),
    disk: int | None = None, progress: Progress = lambda what, part: None,
) -> CorpusOutcome:  # fmt: skip
    """Audit all models that have no record in the store for these settings and versions.

    Args:
        sources: files, folders, patterns, lists, URLs; see `graphopt.audit.corpus.sources.named`.
        store: the file with all records; created if missing.
        settings: how each is audited.
        jobs: the number of workers, if no engine is given.
        engine: makes the engine; `graphopt.audit.corpus.fleet.Fleet` for Dask.
        release: the name of this campaign in reports; graphopt's version if "".
        shard: (i, n) for part i of n, divided by names.
        disk: bytes that models behind URLs may occupy on each machine; half of the free space there if None.
        progress: callback that receives the progress.

    Raises:
        ModelError: the store cannot be used, or the machines have no free disk space.
        UsageError: an argument is wrong.
    """
    settings = settings or CorpusSettings()
    if jobs < 1:
        raise UsageError(f"jobs: at least 1 expected, found {jobs}")
    if not 1 <= shard[0] <= shard[1]:
        raise UsageError(f"shard {shard[0]}/{shard[1]}: expected i/n with i from 1 to n")
    check_text("release", release)
    settings.check()  # errors that concern all models are reported once
    told = versions(settings.against)
    with Store(store, write=True) as open_store:
        campaign = open_store.campaign(settings, told, release or f"graphopt {told['graphopt']}")
        listed = open_store.list_names(name for name in named(sources) if _in_shard(name, shard))
        run = _Run(open_store, campaign, settings, disk, progress)
        run.outcome.listed = listed
        try:
            with _working(engine or (lambda: WorkerPool(jobs))) as worker:
                run.all(worker)
        except sqlite3.Error as error:
            raise ModelError(f"cannot write {store}: {error}; run it again to go on") from error
    return run.outcome


def _in_shard(name: str, shard: Shard) -> bool:
    return shard[1] == 1 or int(digest_of(name)[:15], 16) % shard[1] == shard[0] - 1


@contextmanager
def _working(make: Callable[[], Engine]) -> Iterator[Engine]:
    """An engine; if the block raises, running tasks are stopped."""
    engine = make()
    try:
        yield engine
    except BaseException:
        engine.close(now=True)
        raise
    engine.close()


class _Run:
    """A run in progress."""

    def __init__(
        self, store: Store, campaign: Campaign, settings: CorpusSettings, disk: int | None, progress: Progress
    ) -> None:
        self.store, self.campaign, self.settings, self.progress = store, campaign, settings, progress
        self.disk = disk
        self.outcome = CorpusOutcome(campaign.release)
        self.began = time.perf_counter()
        self.versions = digest_of(campaign.versions)
        self.stop = threading.Event()
        self.troubles = 0
        self.todo = 0
        self.found = 0
        """The number of models behind URLs that were read and are to be audited."""

    def all(self, engine: Engine) -> None:
        """Read the unknown models, then audit those without a record.

        Models behind URLs are read one by one during the audits, so that few are on a disk at any time.
        """
        with _asked_to_stop(self.stop):
            self._each(engine, self._reading())
            kinds = engine.kinds() if self.settings.timed else [""]
            planned = self.store.plan(self.campaign, kinds)
            self.todo = planned + self.store.unread()
            self._each(engine, itertools.chain(map(self._audit, self.store.todo()), self._fetching()))
            self.outcome.models = self.store.listed_models()
            self.outcome.reused = self.outcome.models - planned - self.found
        self.outcome.stopped = self.stop.is_set()
        self.outcome.seconds = time.perf_counter() - self.began

    def _each(self, engine: Engine, tasks: Iterator[_Task]) -> None:
        """Run all tasks, a few at a time; tasks that answers add go first."""
        under_way: dict[int, _Task] = {}
        numbers = itertools.count()
        first: deque[_Task] = deque()
        while True:
            while len(under_way) < _AHEAD * engine.workers and not self.stop.is_set():
                task = first.popleft() if first else next(tasks, None)
                if task is None:
                    break
                number = next(numbers)
                under_way[number] = task
                engine.submit(number, task.function, *task.args, near=task.near)
            if not under_way:
                return
            answer = engine.next(_POLL_SECONDS)
            if answer is None or answer.ticket not in under_way:
                continue
            task = under_way.pop(answer.ticket)
            if not answer.lost:
                first.extend(task.take(answer))
                continue
            self.outcome.lost += 1
            if task.losses + 1 < _MOST_LOST and not self.stop.is_set():
                first.append(replace(task, losses=task.losses + 1))
            else:
                first.extend(task.take(_lost(task, answer)))

    # -- what models contain

    def _reading(self) -> Iterator[_Task]:
        # An unknown model behind a URL has no stamp to compare with: it is fetched later.
        known = (each for each in self.store.references() if each.digest or not is_remote(each.name))
        for batch in _batches(known, _BATCH):
            yield _Task(locate_all, (batch, self.settings.largest), self._locate)

    def _locate(self, answer: Answer) -> Iterator[_Task]:
        found: Sequence[Reference | Record] = answer.result
        self.store.put_references(each for each in found if isinstance(each, Reference) and each.digest)
        for each in found:
            if isinstance(each, Record):
                self._note(each)
            if isinstance(each, Record) or not each.digest:
                self.store.forget(each.name)
        self.progress("reading models", 0.0)
        return iter(())

    def _fetching(self) -> Iterator[_Task]:
        for name in self.store.unread_names():
            yield _Task(locate_one, (Reference(name), self.settings.largest, self.disk), self._fetched)

    def _fetched(self, answer: Answer) -> Iterator[_Task]:
        found: Reference | Record = answer.result
        if isinstance(found, Record):
            self._keep(found)
            return
        self.store.put_references([found])
        if self.store.claim(found):
            self.found += 1
            yield replace(self._audit(found), near=answer.where)
        else:
            self.todo -= 1

    # -- what becomes of them

    def _audit(self, reference: Reference) -> _Task:
        return _Task(audit_one, (reference, self.settings, self.disk), self._audited)

    def _audited(self, answer: Answer) -> Iterator[_Task]:
        self._keep(answer.result)
        return iter(())

    def _keep(self, record: Record) -> None:
        if record.versions not in ("", self.versions):
            packages = ", ".join(f"{name} {version}" for name, version in record.machine["packages"].items())
            raise UsageError(f"a worker has other versions than this machine ({packages}), or another source")
        self._note(record)
        seconds = time.perf_counter() - self.began
        done, total = self.outcome.new, max(self.todo, self.outcome.new)
        left = seconds / done * (total - done)
        rate = f"{3600 * done / seconds:,.0f} models an hour, {duration(left)} left"
        self.progress(f"{done:,} of {total:,}: {rate}", done / total)

    def _note(self, record: Record) -> None:
        self.store.put(self.campaign, record)
        self.outcome.statuses[record.status] += 1
        self.troubles = self.troubles + 1 if record.status in ("disk", "lost") else 0
        if self.troubles >= _MOST_TROUBLES:
            raise ModelError(f"{self.troubles} models in a row failed with: {record.how}; run it again to go on")


def _batches(items: Iterator[Reference], size: int) -> Iterator[list[Reference]]:
    while batch := list(itertools.islice(items, size)):
        yield batch


def _lost(task: _Task, answer: Answer) -> Answer:
    """The answer for a task with which every worker died."""
    references = task.args[0] if isinstance(task.args[0], list) else [task.args[0]]
    records = [Record(each.digest or digest_of(each.name), each.name, "lost", answer.lost) for each in references]
    return replace(answer, result=records if isinstance(task.args[0], list) else records[0])


@contextmanager
def _asked_to_stop(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C lets running tasks finish; the second one stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        sys.stderr.write("graphopt: stopping after what runs; again to stop at once\n")

    before = signal.signal(signal.SIGINT, asked)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
