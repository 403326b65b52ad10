"""The report on a campaign's records: by optimizer, by pass, by operator, with the models behind each figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from graphopt.audit.contestants import BASELINE, UNOPTIMIZED
from graphopt.audit.corpus.changes import Comparison
from graphopt.audit.corpus.record import Record
from graphopt.audit.corpus.store import Campaign, Store
from graphopt.errors import UsageError
from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

SCHEMA = 2
"""Version of the JSON form."""


@dataclass(slots=True)
class Mean:
    """An incremental geometric mean.

    Attributes:
        total: sum of the logarithms.
        count: number of values.
    """

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Add a value, above 0."""
        self.total += math.log(value)
        self.count += 1

    @property
    def value(self) -> float | None:
        """The mean; None if there are no values."""
        return math.exp(self.total / self.count) if self.count else None


@dataclass(slots=True)
class Speed:
    """One contestant's latency on one kind of machine, relative to the baseline.

    Attributes:
        ratio: mean speed-up.
        faster: faster models with their speed-ups.
        tie: models that tie.
        slower: slower models with their speed-ups.
    """

    ratio: Mean = field(default_factory=Mean)
    faster: dict[str, float] = field(default_factory=dict)
    tie: list[str] = field(default_factory=list)
    slower: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Standing:
    """The results of one contestant on all models.

    Attributes:
        name: the contestant.
        version: its version.
        right: the number of models with a right result.
        failed: models that it failed on, with the errors.
        wrong: models that it miscompiled, with the oracle's messages.
        speed: latency by kind of machine.
        nodes: nodes relative to the raw model's.
        size: bytes relative to the raw model's.
        seconds: total time to optimize.
    """

    name: str
    version: str = ""
    right: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    speed: dict[str, Speed] = field(default_factory=dict)
    nodes: Mean = field(default_factory=Mean)
    size: Mean = field(default_factory=Mean)
    seconds: float = 0.0


@dataclass(slots=True)
class Firing:
    """The rewrites of one pass in one contestant's runs.

    Attributes:
        contestant: the contestant.
        name: the pass.
        times: how often it fired.
        removed: nodes that it removed, minus those that it added.
        models: how often it fired on each model.
    """

    contestant: str
    name: str
    times: int = 0
    removed: int = 0
    models: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Operator:
    """The occurrences of one operator in all models.

    Attributes:
        name: the operator.
        before: the number of occurrences in the raw models.
        after: the number of occurrences in each contestant's results; in the raw model if its result is not right.
        models: the number of models in which it occurs.
    """

    name: str
    before: int = 0
    after: Counter[str] = field(default_factory=Counter)
    models: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """The results of one contestant in one release.

    Attributes:
        release: the release.
        contestant: the contestant.
        version: its version.
        models: the number of audited models.
        right: the number of models with a right result.
        wrong: the number of miscompiled models.
        failed: the number of models that it failed on.
        nodes: nodes relative to the raw model's, geometric mean.
        size: bytes relative to the raw model's, geometric mean.
        seconds: total time to optimize.
        speed: by kind of machine: the geometric mean of speed-ups, and the numbers of faster and slower models.
    """

    release: str
    contestant: str
    version: str
    models: int
    right: int
    wrong: int
    failed: int
    nodes: float | None
    size: float | None
    seconds: float
    speed: dict[str, tuple[float | None, int, int]]


@dataclass(slots=True)
class CorpusReport(Shown):
    """The results of a campaign.

    Attributes:
        campaign: the campaign.
        statuses: the number of models with each status.
        troubles: models without an audit: status, error and activity at that time.
        standings: the results of each contestant on all models, in the order of rows.
        firings: each pass that fired, those that removed most nodes first.
        operators: the operators, most frequent first.
        kinds: kinds of machines that timed models, each with the number of models.
        changes: changes since another release, if one was given.
        releases: all releases, if requested.
    """

    campaign: Campaign
    statuses: Counter[str] = field(default_factory=Counter)
    troubles: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    standings: list[Standing] = field(default_factory=list)
    firings: list[Firing] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    changes: Comparison | None = None
    releases: list[Release] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether graphopt's results were right on every model."""
        return not any(each.wrong or each.failed for each in self.standings if each.name.startswith("graphopt "))

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        data = asdict(self)
        for each, standing in zip(data["standings"], self.standings, strict=True):
            each["nodes"], each["size"] = standing.nodes.value, standing.size.value
            for kind, speed in standing.speed.items():
                each["speed"][kind]["ratio"] = speed.ratio.value
        # `asdict` would count a counter's (key, count) pairs.
        data["statuses"], data["kinds"] = dict(self.statuses), dict(self.kinds)
        for each, operator in zip(data["operators"], self.operators, strict=True):
            each["after"] = dict(operator.after)
        return {"schema": SCHEMA, **data}

    def to_markdown(self) -> str:
        """As Markdown tables."""
        from graphopt.audit.corpus.view import to_markdown

        return to_markdown(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.corpus.view import render

        yield from render(self)


def campaign_of(store: Store, release: str | None = None, but: Campaign | None = None) -> Campaign:
    """The newest campaign of a store, or of one release.

    Args:
        store: the store.
        release: the release; any if None.
        but: a campaign to exclude.

    Raises:
        UsageError: there is none.
    """
    found = [each for each in store.campaigns() if release in (None, each.release) and each != but]
    if not found:
        known = ", ".join(sorted({each.release for each in store.campaigns()})) or "none"
        if release is None:
            raise UsageError(f"{store.path}: no {'other ' if but is not None else ''}release; found {known}")
        if but is not None and release == but.release:
            raise UsageError(f"{store.path}: release {release!r} is the one to be compared; found {known}")
        raise UsageError(f"{store.path}: no release {release!r}; found {known}")
    return found[-1]


def report_of(store: Store, campaign: Campaign) -> CorpusReport:
    """The report on a campaign's records, which are read one by one."""
    return report_on(store.records(campaign), campaign)


def report_on(records: Iterable[Record], campaign: Campaign) -> CorpusReport:
    """The report on records, those of one model adjacent."""
    found = CorpusReport(campaign)
    adding = _Adding(found)
    last = ""
    for record in records:
        # A model that was timed on several kinds of machines counts once.
        adding.add(record, again=record.model == last)
        last = record.model
    found.standings = list(adding.standings.values())
    found.firings = sorted(adding.firings.values(), key=lambda each: (-each.removed, -each.times, each.name))
    found.operators = sorted(adding.operators.values(), key=lambda each: (-each.before, each.name))
    return found


def releases_of(store: Store) -> list[Release]:
    """The results of each contestant in each release of a store, oldest first; reads all records."""
    found = []
    for campaign in store.campaigns():
        report = report_of(store, campaign)
        for each in report.standings:
            if each.name in (UNOPTIMIZED, BASELINE):
                continue
            speed = {
                kind: (one.ratio.value, len(one.faster), len(one.slower)) for kind, one in each.speed.items()
            }  # fmt: skip
            found.append(
                Release(
                    campaign.release, each.name, each.version, report.statuses.total(), each.right, len(each.wrong),
                    len(each.failed), each.nodes.value, each.size.value, each.seconds, speed,
                )
            )  # fmt: skip
    return found


class _Adding:
    """Accumulates a report."""

    def __init__(self, report: CorpusReport) -> None:
        self.report = report
        self.standings: dict[str, Standing] = {}
        self.firings: dict[tuple[str, str], Firing] = {}
        self.operators: dict[str, Operator] = {}

    def add(self, record: Record, *, again: bool) -> None:
        if not again:
            self.report.statuses[record.status] += 1
        if record.audit is None:
            self.report.troubles[record.name] = (record.status, record.how, record.at)
            return
        raw = record.audit["rows"][0]["contents"]
        if record.kind:
            self.report.kinds[record.kind] += 1
        for row in record.audit["rows"]:
            standing = self.standings.setdefault(row["name"], Standing(row["name"], row["version"]))
            right = _is_right(row)
            if right:
                self._time(standing, record, row)
            if again:
                continue
            self._count(standing, record.name, row, raw)
            if row["name"] == BASELINE:
                continue
            counts = right and row["contents"] is not None
            if counts:
                self._fire(record.name, row)
            self._operate(row["name"], row["contents"] if counts else raw)

    @staticmethod
    def _count(standing: Standing, model: str, row: dict[str, Any], raw: dict[str, Any] | None) -> None:
        standing.seconds += row["seconds"] or 0.0
        if row["status"] != "ok":
            standing.failed[model] = f"{row['status']}: {row['message']}"
        elif row["verification"] == "mismatch":
            standing.wrong[model] = row["message"]
        else:
            standing.right += 1
            if row["contents"] and raw and raw["nodes"] and row["contents"]["nodes"]:
                standing.nodes.add(row["contents"]["nodes"] / raw["nodes"])
            if row["contents"] and raw and raw["file_bytes"] and row["contents"]["file_bytes"]:
                standing.size.add(row["contents"]["file_bytes"] / raw["file_bytes"])

    @staticmethod
    def _time(standing: Standing, record: Record, row: dict[str, Any]) -> None:
        assert record.audit is not None
        found = row["speedup"].get(str(record.audit["threads"][0]))
        if found is None or row["name"] == BASELINE:
            return
        speed = standing.speed.setdefault(record.kind, Speed())
        speed.ratio.add(found["median"])
        if found["verdict"] == "tie":
            speed.tie.append(record.name)
        else:
            (speed.faster if found["verdict"] == "faster" else speed.slower)[record.name] = found["median"]

    def _fire(self, model: str, row: dict[str, Any]) -> None:
        for name, times in row["passes"].items():
            firing = self.firings.setdefault((row["name"], name), Firing(row["name"], name))
            firing.times += times
            firing.removed += row["removed"].get(name, 0)
            firing.models[model] = times

    def _operate(self, contestant: str, contents: dict[str, Any] | None) -> None:
        for name, number in contents["ops"].items() if contents else ():
            operator = self.operators.setdefault(name, Operator(name))
            if contestant == UNOPTIMIZED:
                operator.before += number
                operator.models += 1
            else:
                operator.after[contestant] += number


def _is_right(row: dict[str, Any]) -> bool:
    return bool(row["status"] == "ok" and row["verification"] != "mismatch")
