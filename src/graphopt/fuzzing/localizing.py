"""Finds the pass that causes a fault: our single rewrite, or a peer's pass that shows the fault by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import onnx

from graphopt.audit.bisection import first_bad
from graphopt.errors import GraphoptError
from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.subjects import NO_PASS, Optimized, OwnSubject, PeerSubject, Subject
from graphopt.fuzzing.verdicts import Judge, NotUsableError, Verdict
from graphopt.peers import NOTHING

TOGETHER = "no single pass"
"""Prefix of a cause if no pass of a peer shows the fault by itself."""
_UNTRACED = ("hung", "nondeterministic")
_SECONDS = 20.0
"""For tracing one fault of a peer."""
_ROUNDS = 2
"""How often a peer's passes run in sequence: later ones can enable earlier ones."""


def localize(sample: Sample, subject: Subject, verdict: Verdict) -> str:
    """The name of the pass that causes a fault; empty if it cannot be determined.

    Args:
        sample: a sample that shows the fault on its first feed.
        subject: the optimizer.
        verdict: the fault.
    """
    try:
        if isinstance(subject, OwnSubject):
            return _own(sample, subject, verdict)
        if isinstance(subject, PeerSubject) and verdict.kind not in _UNTRACED:
            return _peers(sample, subject, verdict)
    except (GraphoptError, NotUsableError):
        pass
    return ""


def shown_by(cause: str, judge: Judge, subject: PeerSubject, verdict: Verdict) -> bool:
    """Whether the pass of a peer that a cause names shows the fault by itself.

    Args:
        cause: the result of `localize`.
        judge: the judge of the sample.
        subject: the optimizer.
        verdict: the fault.
    """
    if not subject.names(cause):
        return False
    name = NOTHING if cause == NO_PASS else cause
    found = judge.of(subject, subject.run_pass(judge.model, name), again=False, once_more=False)
    return found is not None and found.kind == verdict.kind


def _peers(sample: Sample, subject: PeerSubject, verdict: Verdict) -> str:
    """The pass that shows the fault by itself, preferably with the same message; else those that do in sequence."""
    names = subject.passes()
    if not names:
        return ""
    judge, until = Judge(sample), time.monotonic() + _SECONDS
    alike = ""
    for name in _in_time((NOTHING, *names), until):
        found = judge.of(subject, subject.run_pass(sample.model, name), again=False, once_more=False)
        if found is not None and found.kind == verdict.kind:
            if found.signature == verdict.signature or name == NOTHING:
                return name or NO_PASS
            alike = alike or name
    if alike:
        return alike
    last = _one_after_the_other(judge, subject, verdict, until)
    return f"{TOGETHER}, {last} behind others" if last else f"{TOGETHER}: {verdict.signature}"


def _in_time(names: Sequence[str], until: float) -> Iterator[str]:
    for name in names:
        if time.monotonic() > until:
            return
        yield name


def _one_after_the_other(judge: Judge, subject: PeerSubject, verdict: Verdict, until: float) -> str:
    """The pass after which the fault appears if all run in sequence; empty if there is none."""
    at: onnx.ModelProto = judge.model
    for name in _in_time(subject.passes() * _ROUNDS, until):
        outcome: Optimized = subject.run_pass(at, name)
        found = judge.of(subject, outcome, again=False, once_more=False)
        if found is not None and found.kind == verdict.kind:
            return name
        if outcome.model is None:
            break
        at = outcome.model
    return ""


def _own(sample: Sample, subject: OwnSubject, verdict: Verdict) -> str:
    """The rewrite after which the fault appears; runs are deterministic, so the first n rewrites never change."""
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
