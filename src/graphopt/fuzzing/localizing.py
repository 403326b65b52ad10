"""The pass that a fault comes from: the single rewrite of ours, a peer's pass where it runs them one by one."""

from __future__ import annotations

from graphopt.audit.bisection import first_bad
from graphopt.audit.blame import blame
from graphopt.errors import GraphoptError
from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.subjects import OwnSubject, PeerSubject, Subject
from graphopt.fuzzing.verdicts import Judge, NotUsableError, Verdict

_BLAMED = "wrong"
"""What a peer's passes, run one by one, are asked about: whatever else they do depends on how the peer runs them."""
_BLAME_SECONDS = 20.0


def localize(sample: Sample, subject: Subject, verdict: Verdict) -> str:
    """The name of the pass that a fault comes from, empty where it cannot be told.

    Args:
        sample: a sample that shows the fault on its first feed.
        subject: the optimizer.
        verdict: what is wrong.
    """
    try:
        if isinstance(subject, OwnSubject):
            return _own(sample, subject, verdict)
        if isinstance(subject, PeerSubject) and verdict.kind == _BLAMED:
            fault = blame(sample.model, subject.peer.name, feed=sample.feeds[0], timeout=_BLAME_SECONDS)
            return fault.step if fault is not None else ""
    except (GraphoptError, NotUsableError):
        pass
    return ""


def _own(sample: Sample, subject: OwnSubject, verdict: Verdict) -> str:
    """The rewrite after which the fault is there; runs are deterministic, so the first n are always the same."""
    if verdict.kind == "unstable":
        return ", ".join(sorted(set(verdict.passes))) or "no pass"
    if verdict.kind == "raised":
        return verdict.message.partition(":")[0]
    count = len(subject.manager.run(sample.model).events)
    if not count or verdict.kind not in ("wrong", "runtime", "invalid", "does not load", "lost"):
        return ""
    judge = Judge(sample)

    def limited(number: int) -> list[str]:
        subject.manager.limit = number
        try:
            return [event.rule for event in subject.manager.run(sample.model).events]
        finally:
            subject.manager.limit = None

    def bad(number: int) -> bool:
        subject.manager.limit = number
        try:
            found = judge.of(subject, subject.optimize(sample.model), again=False, once_more=False)
        finally:
            subject.manager.limit = None
        return found is not None and found.kind == verdict.kind

    return limited(first_bad(count, bad))[-1]
