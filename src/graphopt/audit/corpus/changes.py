"""Changes between two releases, model by model, worst first; and whether they prevent a release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, get_args

from graphopt.audit.contestants import BASELINE, UNOPTIMIZED
from graphopt.audit.corpus.record import CorpusSettings, Record, Reference
from graphopt.audit.corpus.store import Campaign, Store
from graphopt.audit.corpus.task import audit_one, machine

What = Literal[
    "wrong", "failed", "slower", "more nodes", "larger",
    "faster", "fewer nodes", "smaller", "no longer failed", "right again",
]  # fmt: skip
_ORDER: tuple[What, ...] = get_args(What)
BREAKING: tuple[What, ...] = ("wrong", "failed", "slower")
"""Changes that prevent a release."""


@dataclass(frozen=True, slots=True)
class ChangedModel:
    """A model for which the result of a contestant changed.

    Attributes:
        model: digest of the model.
        name: its name.
        contestant: the contestant.
        what: the kind of change.
        before: the result before, in words.
        after: the result after.
        ratio: after / before, if both are numbers; for times above 1 is slower.
        kind: the kind of machine, for times.
    """

    model: str
    name: str
    contestant: str
    what: What
    before: str
    after: str
    ratio: float = 0.0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two releases.

    Attributes:
        old: the earlier campaign.
        new: the later campaign.
        margin: the fraction by which a time or a size may differ.
        compared: the number of models that both have.
        untimed: the number of models whose times are not compared, since they are from different kinds of machines.
        changes: the changes, worst first.
    """

    old: Campaign
    new: Campaign
    margin: float
    compared: int
    untimed: int
    changes: list[ChangedModel]

    @property
    def breaking(self) -> list[ChangedModel]:
        """The changes that prevent the new release."""
        return [each for each in self.changes if each.what in BREAKING]


def compare(old: Store, before: Campaign, new: Store, after: Campaign, margin: float) -> Comparison:
    """The changes from one campaign to another, for the models that both have.

    A model is slower if its speed-up over the baseline of its own run decreased by more than the margin and the
    intervals of both do not overlap; if it was measured several times, the median counts. Times of different kinds of
    machines are not compared; everything else is.

    Args:
        old: the store of the earlier release.
        before: its campaign.
        new: the store of the later release; it may be the same.
        after: its campaign.
        margin: the fraction by which a time or a size may differ.
    """
    changes: dict[tuple[str, str, What, str], ChangedModel] = {}
    compared: set[str] = set()
    timed: set[str] = set()
    for record in new.records(after):
        known = old.record(before, record.model, record.kind)
        same = known is not None
        known = known or old.record(before, record.model)
        if known is None:
            continue
        compared.add(record.model)
        if same:
            timed.add(record.model)
        pair = _Pair(known, record, old.repeats(before, *_key(known)), new.repeats(after, *_key(record)))
        # A model that was timed on several kinds of machines counts as one change, except for its times.
        for each in pair.changes(margin, timed=same):
            changes.setdefault((each.model, each.contestant, each.what, each.kind), each)
    ordered = sorted(changes.values(), key=lambda each: (_ORDER.index(each.what), -abs(each.ratio - 1.0), each.name))
    return Comparison(before, after, margin, len(compared), len(compared - timed), ordered)


def confirm(store: Store, found: Comparison, times: int, again: Callable[[], Comparison]) -> Comparison:
    """Repeat measurements that seem slower, so that noise is not reported as a change; the repeats are stored.

    Args:
        store: the store of the new release.
        found: the changes.
        times: how often to repeat each measurement.
        again: repeats the comparison.
    """
    settings = CorpusSettings(**{**found.new.settings, "levels": tuple(found.new.settings["levels"]),
                                 "against": tuple(found.new.settings["against"]),
                                 "threads": tuple(found.new.settings["threads"])})  # fmt: skip
    for _ in range(times):
        suspects = {each.model: each for each in found.changes if each.what == "slower"}
        for change in suspects.values():
            if change.kind == machine().kind:
                _measure(store, found.new, change, settings)
        found = again()
    return found


def _measure(store: Store, campaign: Campaign, change: ChangedModel, settings: CorpusSettings) -> None:
    """Audit a model again, under any name that still refers to it."""
    for name in dict.fromkeys((change.name, *store.names_of(change.model))):
        record = audit_one(Reference(name, change.model), settings)
        if record.audit is not None:
            store.put_repeat(campaign, record)
            return


def _key(record: Record) -> tuple[str, str]:
    return record.model, record.kind


class _Pair:
    """One model in two releases."""

    def __init__(self, old: Record, new: Record, old_repeats: list[Record], new_repeats: list[Record]) -> None:
        self.old, self.new = old, new
        self.old_all, self.new_all = [old, *old_repeats], [new, *new_repeats]

    def changes(self, margin: float, *, timed: bool) -> Iterator[ChangedModel]:
        """All differences; in times only if these are comparable."""
        before, after = _rows(self.old), _rows(self.new)
        if self.new.audit is None or self.old.audit is None:
            if self.new.audit is None and self.old.audit is not None:
                yield self._change("", "failed", ("done", f"{self.new.status}: {self.new.how}"))
            elif self.old.audit is None and self.new.audit is not None:
                yield self._change("", "no longer failed", (self.old.status, "done"))
            return
        for name in after:
            if name in before and name not in (BASELINE, UNOPTIMIZED):
                yield from self._row(name, before[name], after[name], margin)
                if timed and _state(before[name]) == _state(after[name]) == "right":
                    yield from self._speed(name, margin)

    def _row(self, name: str, old: dict[str, Any], new: dict[str, Any], margin: float) -> Iterator[ChangedModel]:
        states = (_state(old), _state(new))
        if states[0] != states[1]:
            what: What = "wrong" if states[1] == "wrong" else "failed" if states[1] != "right" else (
                "right again" if states[0] == "wrong" else "no longer failed"
            )  # fmt: skip
            now = "right" if states[1] == "right" else new["message"] or states[1]
            yield self._change(name, what, (states[0], now))
        if states != ("right", "right"):
            return
        was, now_is = old["contents"], new["contents"]
        kinds: tuple[tuple[str, tuple[What, What], float], ...] = (
            ("nodes", ("more nodes", "fewer nodes"), 0.0), ("file_bytes", ("larger", "smaller"), margin)
        )  # fmt: skip
        for key, names, allowed in kinds:
            ratio = now_is[key] / max(was[key], 1)
            if now_is[key] != was[key] and not 1 - allowed <= ratio <= 1 + allowed:
                counts = (f"{was[key]:,}", f"{now_is[key]:,}")
                yield self._change(name, names[0] if ratio > 1 else names[1], counts, ratio)

    def _speed(self, name: str, margin: float) -> Iterator[ChangedModel]:
        old, new = _speeds(self.old_all, name), _speeds(self.new_all, name)
        if not old or not new:
            return
        ratio = median(each["median"] for each in old) / median(each["median"] for each in new)
        apart = (
            max(each["high"] for each in new) < min(each["low"] for each in old)
            if ratio > 1
            else min(each["low"] for each in new) > max(each["high"] for each in old)
        )
        if not apart or 1 - margin <= 1 / ratio <= 1 + margin:
            return
        first, last = (f"{median(each['median'] for each in speeds):.2f}x" for speeds in (old, new))
        yield self._change(name, "slower" if ratio > 1 else "faster", (first, last), ratio)

    def _change(self, contestant: str, what: What, texts: tuple[str, str], ratio: float = 1.0) -> ChangedModel:
        kind = self.new.kind if what in ("slower", "faster") else ""
        return ChangedModel(self.new.model, self.new.name, contestant, what, *texts, ratio, kind)


def _rows(record: Record) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in record.audit["rows"]} if record.audit is not None else {}


def _state(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return str(row["status"])
    return "wrong" if row["verification"] == "mismatch" else "right"


def _speeds(records: list[Record], name: str) -> list[dict[str, Any]]:
    """A contestant's speed-ups in all measurements, at the first thread count."""
    found = []
    for record in records:
        row = _rows(record).get(name)
        assert record.audit is not None or row is None
        speed = row["speedup"].get(str(record.audit["threads"][0])) if row and record.audit else None
        if speed is not None:
            found.append(speed)
    return found
