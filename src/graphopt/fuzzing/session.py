"""A session: hands indices to processes, collects verdicts, groups and stores findings; can be stopped and resumed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.fuzzing.findings import Finding, SessionReport
from graphopt.fuzzing.learning import Distinct, Lessons
from graphopt.fuzzing.operators import check_ops
from graphopt.fuzzing.seedlings import golden
from graphopt.fuzzing.stock import FragmentName
from graphopt.fuzzing.subjects import DEFAULT
from graphopt.fuzzing.targets import ModelShown, Targets
from graphopt.fuzzing.working import FuzzSettings, serve
from graphopt.peers import by_name
from graphopt.rewrite import Level, Numerics, Target
from graphopt.system.files import write_text
from graphopt.system.given import check_numbers, several
from graphopt.system.processes import Child, Limits

_SECONDS = 300.0
"""For one model with all optimizers, including its reduction; a longer run counts as hung."""
_START_SECONDS = (120.0, 300.0, 600.0)
"""Limits for the start of a process; the longer ones for retries after it was too slow or was killed by the system."""
_RENEWED = 1000
"""Models after which a process is replaced: each session of the runtime leaks up to a megabyte."""
_STATE = "session.json"
_SAVE_EVERY = 60.0

Progress = Callable[[SessionReport], None]


def fuzz(
    *, levels: Iterable[str | Level] = DEFAULT, peers: Iterable[str] = (), passes: Iterable[str] = (),
    ops: Iterable[str] = (), models: int | None = None, minutes: float | None = None, seed: str | int = 0,
    first: int = 0, corpus: str | Path | None = None, jobs: int = 1, reduce: bool = True, explain: bool = False,
    until: int = 0, after: Iterable[str | Path] = (), thin: int = 1, sow: Iterable[str] = (),
    numerics: str | Numerics = Numerics.ROUNDING, target: str | None = None, progress: Progress = lambda report: None,
) -> SessionReport:  # fmt: skip
    """Test optimizers on random models.

    Each index from `first` on gives one model, which depends only on the seed. Each optimizer's result is checked,
    run and compared with the original's outputs, with the runtime's own optimizations off.

    Args:
        levels: graphopt's levels; `alone` for single passes on models that begin with their golden cases.
        peers: names of other optimizers.
        passes: passes of graphopt that run alone, in place of the levels; models begin with their golden cases.
        ops: operators to draw from; all if none is given.
        models: the number of indices; 1000 if neither this nor `minutes` is given.
        minutes: the duration.
        seed: the seed of all models.
        first: the first index.
        corpus: a folder for reduced models and the state, from which the same session can be resumed.
        jobs: the number of concurrent processes.
        reduce: whether to reduce failing models.
        explain: also count why passes declined.
        until: begin models with golden cases of the passes that need most, until each has fired on this many models and
            has declined on a tenth as many for each reason; implies `explain`.
        after: reports of earlier sessions, as `--json` prints them, from whose counts `until` continues.
        thin: levels and peers take turns, so that each judges one of this many models; `alone` judges all.
        sow: golden cases, as `pass/case`, that every model begins with.
        numerics: the ceiling for passes of levels.
        target: the machine that layout passes write for; the present one if None.
        progress: called with the report after every model.

    Returns:
        The report; `report.ok` is True if graphopt had no fault.

    Raises:
        UsageError: an argument is unknown, a report cannot be read, or the folder holds another session.
    """
    check_numbers(1, whole=True, models=models, jobs=jobs, thin=thin)
    check_numbers(whole=True, first=first, until=until)
    check_numbers(minutes=minutes)
    levels, ops, alone = several("levels", levels), several("ops", ops), several("passes", passes)
    check_ops(ops)
    subjects = [f"graphopt {','.join(alone)}"] if alone else [f"graphopt {level}" for level in levels]
    peers = several("peers", peers)
    for name in peers:
        if not by_name(name).available():
            raise UsageError(by_name(name).absent)
    settings = FuzzSettings(
        str(seed), (*subjects, *peers), ops, alone, explain=explain or until > 0, reduce=reduce, until=until,
        thin=thin, numerics=str(Numerics.of(numerics)), target="" if target is None else str(Target.parse(target)),
    )  # fmt: skip
    reports = several("after", after)
    if reports and not until:
        raise UsageError("after: the counts of earlier sessions are for `until`, which is not given")
    cases = tuple(sow)
    if cases:
        unknown = {FragmentName.read(case).case for case in cases} - {each.name for each in golden(alone)}
        if unknown:
            raise UsageError(f"no golden case {min(unknown)!r}")
    if models is None and minutes is None:
        models = 1000
    folder = None if corpus is None else Path(corpus)
    session = _Session(settings, first, models=models, minutes=minutes, corpus=folder, progress=progress, sow=cases)
    for path in reports:
        session.count(Path(path))
    return session.run(jobs)


@dataclass(slots=True)
class _Range:
    """The remaining indices, handed out one by one."""

    next: int
    end: float
    until: float

    def take(self) -> int | None:
        if self.next >= self.end or time.monotonic() >= self.until:
            return None
        self.next += 1
        return self.next - 1


class _Session:
    """A running session."""

    def __init__(
        self, settings: FuzzSettings, first: int, *, models: int | None, minutes: float | None, corpus: Path | None,
        progress: Progress, sow: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.settings, self.corpus, self.progress, self.sow = settings, corpus, progress, sow
        self.report = SessionReport.empty(settings)
        self.finished: set[int] = set()
        self.sown: dict[int, list[str]] = {}
        self.lock = threading.Lock()
        self.learned = threading.Condition(self.lock)
        self.children: set[Child] = set()
        self.began, self.saved = time.monotonic(), 0.0
        if corpus is not None:
            corpus.mkdir(parents=True, exist_ok=True)
            first = max(first, self._resume(corpus / _STATE))
        self.targets: Targets | None = None
        if settings.until:
            self.targets = Targets(golden(settings.passes), settings.until)
            self.targets.restore(self.report.fired, self.report.declined)
        self.lessons = Lessons(first)
        self.distinct = Distinct.read(corpus)
        end = float("inf") if models is None else first + models
        self.left = _Range(first, end, float("inf") if minutes is None else self.began + 60 * minutes)
        self.first, self.earlier = first, self.report.seconds
        self.failure: BaseException | None = None

    def count(self, path: Path) -> None:
        """Add the counts of an earlier session's report to those of this one."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            fired, declined = Counter(told["fired"]), {rule: Counter(found) for rule, found in told["declined"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} is not a report of a session: {type(error).__name__}: {error}") from None
        assert self.targets is not None
        self.targets.restore(fired, declined)

    def run(self, jobs: int) -> SessionReport:
        """Work through the indices; Ctrl-C ends the session with the results so far."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except KeyboardInterrupt:
            self.report.interrupted = True
            self._stop()
            for thread in threads:
                thread.join(5.0)
        self._save()
        if self.failure is not None and not self.report.interrupted:  # a process that was stopped did not fail
            raise self.failure
        return self.report

    def _stop(self) -> None:
        with self.learned:
            self.left.end = 0
            self.learned.notify_all()
            for child in self.children:
                child.stop()

    def _work(self) -> None:
        try:
            while self._with_one_child():
                pass
        except BaseException as error:  # the caller re-raises a thread's error
            self.failure = error
            self._stop()

    def _with_one_child(self) -> bool:
        """Work in one process until it ends; whether there is more to do."""
        with self.lock:
            index = self.left.take()
        if index is None:
            return False
        with self._child() as child:
            skip: tuple[str, ...] = ()
            for count in range(_RENEWED):
                if count:
                    with self.lock:
                        index = self.left.take()
                if index is None:
                    return False
                stage = self._one(child, index, skip)
                if stage is not None:
                    self._ended(index, child, *stage)
                    return True
            return True

    @contextmanager
    def _child(self) -> Iterator[Child]:
        """A process that is ready for indices.

        Raises:
            GraphoptError: the process raised it, or none was ready in time.
        """
        for seconds in _START_SECONDS:
            with Child(serve, self.settings, limits=Limits(seconds)) as child:
                self.children.add(child)
                try:
                    if child.hear() is not None:
                        yield child
                        return
                    pressed = child.ending is not None and (child.ending.crashed or child.ending.cause == "timeout")
                    if not pressed or seconds == _START_SECONDS[-1]:
                        child.result()  # re-raises the child's error
                finally:
                    self.children.discard(child)

    def _one(self, child: Child, index: int, skip: tuple[str, ...]) -> tuple[str, str] | None:
        """Work on one index; returns the stage at which the process ended, None if it did not."""
        child.restrict(Limits(_SECONDS))
        stage = "drawing", ""
        with self.learned:
            sow = list(self.sow)
            if self.targets is not None:
                self.learned.wait_for(lambda: self.lessons.ready(index) or not self.left.end)
                for block in self.lessons.due(index):
                    self.targets.learn(block)
                sow = self.targets.draw(self.settings.seed, index)
                self.learned.notify_all()
            self.sown[index] = sow
        message = child.ask(index=index, skip=list(skip), sow=sow)
        while message is not None and "done" not in message:
            stage = message["stage"], message["subject"]
            message = child.hear()
        if message is None:
            return stage
        with self.lock:
            self.finished.add(index)
            self.sown.pop(index, None)
            self.report.add(message)
            for found in message["findings"]:
                self._keep(Finding.of(found, self.settings.seed))
            self._learn(index, ModelShown(message["shown"], message["fired"], message["declined"], sow))
            self.distinct.add(message)
            self._tell()
        return None

    def _learn(self, index: int, shown: ModelShown) -> None:
        if self.targets is None:
            return
        self.lessons.add(index, shown)
        self.targets.count(shown)
        self.learned.notify_all()
        if self.targets.done:
            self.left.end = 0

    def _ended(self, index: int, child: Child, stage: str, subject: str) -> None:
        """Record a process that ended: a fault of its optimizer, or of the runtime before any optimizer ran."""
        ending = child.ending
        with self.lock:
            self.finished.add(index)
            self._learn(index, ModelShown(sown=self.sown.get(index, ())))
            if self.left.end == 0 or ending is None:
                return
            kind = "hung" if ending.cause == "timeout" else "crashed"
            if not subject:
                self.report.add({"discarded": f"the runtime {kind} while {stage}"})
            elif stage in ("reducing", "localizing"):
                self.report.add({"discarded": f"{kind} while {stage}"})
            else:
                found = {
                    "index": index,
                    "subject": subject,
                    "kind": kind,
                    "message": f"{stage}: {ending}",
                    "cause": stage,
                    "sown": ",".join(self.sown.get(index, ())),
                }
                self.report.add({"made": True})
                self._keep(Finding.of(found, self.settings.seed))
            self._tell()

    # -- what is kept

    def _keep(self, finding: Finding) -> None:
        fresh = self.report.group(finding)
        if self.corpus is not None and fresh and finding.model is not None:
            finding.write(self.corpus / "findings", self.settings)

    def _tell(self) -> None:
        now = time.monotonic()
        self.report.seconds = self.earlier + now - self.began
        self.report.distinct, self.report.forms = len(self.distinct.models), Counter(self.distinct.counts())
        self.progress(self.report)
        if self.corpus is not None and now - self.saved > _SAVE_EVERY:
            self._save()

    def _save(self) -> None:
        if self.corpus is None:
            return
        self.saved = time.monotonic()
        done = self.first
        while done in self.finished:  # unfinished ones are repeated
            done += 1
        state = {"settings": asdict(self.settings), "next": done, "report": self.report.to_dict()}
        write_text(self.corpus / _STATE, json.dumps(state, indent=1) + "\n")
        self.distinct.write(self.corpus)

    def _resume(self, path: Path) -> int:
        if not path.is_file():
            return 0
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            same = {**asdict(FuzzSettings()), **state["settings"]} == json.loads(json.dumps(asdict(self.settings)))
            if same:
                self.report = SessionReport.from_dict(state["report"], self.settings)
                return int(state["next"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
        raise UsageError(f"{path.parent} holds a session with another seed or other optimizers; name another folder")
