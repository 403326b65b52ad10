"""The work on one model and the process that does it: draw, judge all optimizers, reduce and localize faults."""

from __future__ import annotations

import base64
import gc
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.field import Turns
from graphopt.fuzzing.localizing import localize, shown_by
from graphopt.fuzzing.models import TOGETHER, Wishes, sample
from graphopt.fuzzing.oddities import ODDITIES
from graphopt.fuzzing.seedlings import Nursery, golden
from graphopt.fuzzing.shrinking import narrow, shrink
from graphopt.fuzzing.stock import Stock
from graphopt.fuzzing.subjects import DEFAULT, Alone, Optimized, OwnSubject, PeerSubject, Subject, subject_of
from graphopt.fuzzing.targets import FIRES
from graphopt.fuzzing.unstated import USUAL_AND_UNSTATED
from graphopt.fuzzing.verdicts import Judge, NotUsableError, Verdict
from graphopt.system.child import requests, tell

_ENOUGH = 2
"""Findings of one kind that are reduced; later ones are only counted."""
_ONCE_MORE = 8
"""One model in this many is optimized a second time, which must give the same result."""
_TRACED = 8
"""Faults of a peer with the same message that are traced; later ones get the first one's cause if no other fits."""
_TELLING = ("invalid", "does not load", "raised", "lost")
"""Verdicts whose messages distinguish faults within one pass of a peer; some of its passes are whole optimizers."""
_COLLECTED = 64
"""Models after which reference cycles are collected."""
_MOST = 200
"""The most elements of an input that a finding stores."""


@dataclass(frozen=True, slots=True)
class FuzzSettings:
    """The settings of a session; equal settings give equal models and verdicts.

    Attributes:
        seed: the seed of all models.
        subjects: the optimizers, as `subject_of` takes them.
        ops: operators to draw from; all if empty.
        passes: passes with whose golden cases models begin; all if empty.
        steps: the largest number of nodes drawn for one model.
        explain: count why our passes declined.
        seconds: time limit for the reduction of one model.
        reduce: whether to reduce and localize.
        until: on how many models each pass is to fire, if golden cases are chosen by what passes lack; 0 if they are
            not.
        thin: levels and peers take turns, each judges one of this many models; single passes judge all.
        numerics: the ceiling for passes of levels.
        target: the machine that layout passes write for; the present one if "".
    """

    seed: str = "0"
    subjects: tuple[str, ...] = tuple(f"graphopt {level}" for level in DEFAULT)
    ops: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    steps: int = 10
    explain: bool = False
    seconds: float = 15.0
    reduce: bool = True
    until: int = 0
    thin: int = 1
    numerics: str = "rounding"
    target: str = ""


@dataclass(slots=True)
class Tally:
    """The results of one index.

    Attributes:
        made: whether it gave a usable model.
        judged: the subjects that were tested.
        discarded: the reason if it gave none.
        ops: operators in the model.
        fired: passes that fired, for any of our subjects.
        declined: passes that declined, with their reasons.
        findings: the faults.
        shown: for each golden case in the model, what its own pass did there: reasons to decline, or that it fired.
        forms: for each of them, a number that is equal for cases that differ only in names and weights.
        model: a digest of the model.
    """

    made: bool = False
    judged: list[str] = field(default_factory=list)
    discarded: str = ""
    ops: tuple[str, ...] = ()
    fired: dict[str, int] = field(default_factory=dict)
    declined: dict[str, dict[str, int]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    shown: dict[str, list[str]] = field(default_factory=dict)
    forms: dict[str, int] = field(default_factory=dict)
    model: int = 0


class Worker:
    """Works on indices one after another.

    Args:
        settings: what to run.
        at: called with the next stage, for reports of a crash.
    """

    def __init__(self, settings: FuzzSettings, at: Callable[[str, str], None] = lambda stage, subject: None) -> None:
        self.settings, self.at = settings, at
        self.subjects: list[Subject] = []
        for name in settings.subjects:
            own = {"explain": settings.explain, "numerics": settings.numerics, "target": settings.target}
            self.subjects.append(subject_of(name, **(own if name.startswith("graphopt ") else {})))
        cases = list(golden(settings.passes))
        named = {each.name: each for each in cases}
        peers = tuple(name for name in settings.subjects if not name.startswith("graphopt "))
        field = bool(peers) and len(peers) == len(settings.subjects)
        self.stock = Stock(settings.seed, named, ODDITIES if field else USUAL_AND_UNSTATED)
        self.turns = Turns(settings.seed, named, peers) if field else None
        self.wishes = Wishes(
            settings.ops, Nursery(cases), bool(settings.passes), settings.steps, TOGETHER, named, self.stock, field
        )
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.causes: dict[tuple[str, str, str], list[str]] = {}

    def close(self) -> None:
        """End the processes of peers."""
        for subject in self.subjects:
            subject.close()

    def draw(self, index: int, sow: Sequence[str] = ()) -> Sample | None:
        """The sample of an index, with the given golden cases if there are any."""
        return sample(f"{self.settings.seed}/{index}", self.wishes, sow)

    def work(self, index: int, skip: tuple[str, ...] = (), sow: Sequence[str] = ()) -> Tally:
        """Draw the model of an index and judge the result of each subject.

        Args:
            index: the index.
            skip: subjects that crash on it.
            sow: golden cases that the model begins with.
        """
        if index % _COLLECTED == 0:
            gc.collect()  # the collector starts too rarely for what optimizing keeps alive
        tally = Tally()
        self.at("drawing", "")
        if self.turns is not None and not sow:
            sow = self.turns.draw(index)
        drawn = self.draw(index, sow)
        if drawn is None:
            tally.discarded = "nothing drawn"
            return tally
        self.at("running the original", "")
        try:
            judge = Judge(drawn)
        except NotUsableError as reason:
            tally.discarded = str(reason).partition(":")[0][:60]
            return tally
        tally.made = True
        tally.model = digest(drawn.model.SerializeToString(deterministic=True))
        tally.shown = {name: [] for name in drawn.planted}
        tally.forms = {name: planted.form for name, planted in drawn.planted.items()}
        tally.ops = tuple(
            sorted({f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in drawn.model.graph.node})
        )
        for turn, subject in enumerate(self.subjects):
            due = isinstance(subject, Alone) or (index + turn) % self.settings.thin == 0
            if due and subject.name not in skip and subject.takes(drawn):
                self._judge(index, drawn, judge, subject, tally)
                tally.judged.append(subject.name)
        for found in tally.findings:
            found["sown"] = ",".join(sow)
        return tally

    def _judge(self, index: int, drawn: Sample, judge: Judge, subject: Subject, tally: Tally) -> None:
        self.at("optimizing", subject.name)
        outcome = subject.optimize(drawn.model)
        tally.fired.update(dict.fromkeys(outcome.hits, 1))
        for name, reason in outcome.reasons:
            tally.declined.setdefault(name, {})[reason] = 1
        if isinstance(subject, Alone):
            attribute(drawn, outcome, tally.shown)
        self.at("judging", subject.name)
        once_more = subject.settles and index % _ONCE_MORE == 0
        verdict = judge.of(subject, outcome, again=subject.settles, once_more=once_more)
        if verdict is not None:
            tally.findings.append(self._found(index, drawn, subject, verdict))

    def _found(self, index: int, drawn: Sample, subject: Subject, verdict: Verdict) -> dict[str, Any]:
        feed = drawn.feeds[max(verdict.feed, 0)]
        finding: dict[str, Any] = {
            "index": index, "subject": subject.name, "kind": verdict.kind, "message": verdict.message[:300],
            "passes": list(verdict.passes), "from": drawn.kind, "cause": "", "nodes": len(drawn.model.graph.node),
        }  # fmt: skip
        alone = Sample(drawn.model, [feed], rules=drawn.rules)
        if self.settings.reduce and drawn.planted and isinstance(subject, OwnSubject):
            self.at("reducing", subject.name)
            alone = narrow(alone, lambda s: fails(s, subject, verdict))
        cause = finding["cause"] = self._cause(alone, subject, verdict)
        if isinstance(subject, PeerSubject) and verdict.kind in _TELLING:
            finding["likeness"] = verdict.signature
        tool = "graphopt" if isinstance(subject, OwnSubject) else subject.name  # its levels share most passes
        alike = tool, verdict.kind, cause, finding.get("likeness", "")
        self.seen[alike] += 1
        few = self.seen[alike] <= (_ENOUGH if tool == "graphopt" else 1)
        if self.settings.reduce and few and verdict.kind not in ("hung", "nondeterministic"):
            self.at("reducing", subject.name)
            began = time.perf_counter()
            small = shrink(alone, lambda s: fails(s, subject, verdict, cause), self.settings.seconds)
            finding["seconds"] = round(time.perf_counter() - began, 1)
            finding["reduced"] = base64.b64encode(small.model.SerializeToString()).decode()
            finding["feed"] = {name: array.tolist() for name, array in small.feeds[0].items() if array.size < _MOST}
            finding["reduced_nodes"] = len(small.model.graph.node)
        return finding

    def _cause(self, alone: Sample, subject: Subject, verdict: Verdict) -> str:
        """The pass that causes a fault, or the message. A peer's passes that caused similar faults are tried first."""
        self.at("localizing", subject.name)
        known = self.causes.setdefault((subject.name, verdict.kind, verdict.signature), [])
        if isinstance(subject, PeerSubject) and known:
            judge = Judge(alone)
            again = (cause for cause in dict.fromkeys(known) if shown_by(cause, judge, subject, verdict))
            if (cause := next(again, known[0] if len(known) >= _TRACED else "")) != "":
                return cause
        elif known and not isinstance(subject, OwnSubject):
            return known[0]
        known.append(localize(alone, subject, verdict) or verdict.signature)
        return known[-1]


def attribute(drawn: Sample, outcome: Optimized, shown: dict[str, list[str]]) -> None:
    """Assign what passes did to those of their golden cases in which they did it.

    Args:
        drawn: the model with its cases.
        outcome: the subject's outcome.
        shown: what each case showed, which is extended.
    """
    done = [(rule, FIRES, names) for rule, names in outcome.places.items()]
    done += [(rule, reason, names) for (rule, reason), names in outcome.reasons.items()]
    of: dict[str, list[str]] = {}
    for name in drawn.planted:
        of.setdefault(name.partition("/")[0], []).append(name)
    for rule, what, names in done:
        own = of.get(rule, [])
        for name in [each for each in own if names & drawn.planted[each].values] or (own if len(own) == 1 else ()):
            shown[name].append(what)


def digest(data: bytes) -> int:
    """A 48-bit hash of bytes."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big")


def fails(candidate: Sample, subject: Subject, verdict: Verdict, cause: str = "") -> bool:
    """Whether a candidate shows the same fault: the same verdict for the same optimizer and the same pass of a peer."""
    try:
        judge = Judge(candidate)
    except NotUsableError:
        return False
    if isinstance(subject, PeerSubject) and subject.names(cause) and not shown_by(cause, judge, subject, verdict):
        return False
    outcome = subject.optimize(candidate.model)
    if verdict.kind == "raised" and outcome.fault == "raised":
        return Verdict("raised", outcome.message).signature == verdict.signature
    settled, same = verdict.kind != "unstable", verdict.kind != "nondeterministic"
    found = judge.of(subject, outcome, again=not settled, once_more=not same)
    if found is None or found.kind != verdict.kind:
        return False
    return verdict.kind != "unstable" or bool(set(found.passes) & set(verdict.passes)) or not verdict.passes


def serve(settings: FuzzSettings) -> None:
    """Serve requests as a child process."""
    worker = Worker(settings, lambda stage, subject: tell(stage=stage, subject=subject))
    tell(ready=True)
    try:
        for job in requests():
            tally = worker.work(job["index"], tuple(job.get("skip", ())), job.get("sow", ()))
            tell(
                done=True, made=tally.made, judged=tally.judged, discarded=tally.discarded, ops=list(tally.ops),
                fired=tally.fired, declined=tally.declined, findings=tally.findings, shown=tally.shown,
                forms=tally.forms, model=tally.model,
            )  # fmt: skip
    finally:
        worker.close()
