"""The log of a run: one event per rewrite, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from graphopt.ir import Node, shown_op
from graphopt.ir.seal import ReadOnlySequence
from graphopt.records import dataclass


class NodeNote(NamedTuple):
    """A node as recorded in an event.

    Attributes:
        op: operator, with its domain unless that is the standard one.
        name: node name.
        outputs: names of its outputs at that time.
    """

    op: str
    name: str
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, node: Node) -> NodeNote:
        """The note of a node."""
        names = [v.name if v is not None else "" for v in node.outputs]
        return tuple.__new__(cls, (node.op, node.name, (*names,)))  # faster than `cls(...)`, which is Python code

    def __str__(self) -> str:
        return f"{shown_op(self.op)}({', '.join(self.outputs)})"


@dataclass(frozen=True, slots=True)
class Event:
    """One rewrite.

    Attributes:
        index: its number in the run, from 0.
        rule: the pass that made it.
        graph: name of the graph that it changed.
        removed: removed nodes.
        added: new nodes.
        changed: nodes whose attributes or inputs were changed in place.
        bytes: constant data added minus constant data dropped.
        detail: a remark of the pass.
        zeroed: number of negligible weights that were set to zero.
        bound: upper bound of the resulting change of an output, for activations of magnitude 1.
    """

    index: int
    rule: str
    graph: str
    removed: tuple[NodeNote, ...] = ()
    added: tuple[NodeNote, ...] = ()
    changed: tuple[NodeNote, ...] = ()
    bytes: int = 0
    detail: str = ""
    zeroed: int = 0
    bound: float = 0.0

    @classmethod
    def joined(cls, parts: Sequence[Event], index: int, rule: str, graph: str, detail: str) -> Event:
        """Merge several events into one, without nodes that one added and another removed."""
        removed = dict.fromkeys(note for part in parts for note in part.removed)
        added = dict.fromkeys(note for part in parts for note in part.added)
        changed = dict.fromkeys(note for part in parts for note in part.changed)
        gone, new = (tuple(note for note in a if note not in b) for a, b in ((removed, added), (added, removed)))
        return cls(index, rule, graph, gone, new, tuple(changed), sum(part.bytes for part in parts), detail)

    def __str__(self) -> str:
        before, after = ", ".join(map(str, self.removed)), ", ".join(map(str, self.added))
        changed = "changed " + ", ".join(map(str, self.changed)) if self.changed else ""
        if not before and not after and changed:
            text = f"{self.rule}: {changed}"
        else:
            text = f"{self.rule}: {before or 'nothing'} -> {after or changed or 'nothing'}"
        return f"{text} ({self.detail})" if self.detail else text


@dataclass(slots=True)
class NearMiss:
    """A node at which a rule declined with a reason.

    Attributes:
        rule: the pass.
        node: the node.
        reason: the reason.
        form: the reason without its arguments, by which equal reasons are counted.
        function: the model-local function that contains the node; "" for the main graph and its subgraphs.
    """

    rule: str
    node: NodeNote
    reason: str
    form: str = ""
    function: str = ""


@dataclass(slots=True)
class RuleStats:
    """Statistics of a pass.

    Attributes:
        attempts: number of attempts.
        hits: number of rewrites.
        seconds: time spent in it; for rules in a worklist only measured when profiling.
    """

    attempts: int = 0
    hits: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Failure:
    """A pass that raised; its changes were undone.

    Attributes:
        rule: the pass.
        node: the node at which it raised, or None.
        error: the exception.
    """

    rule: str
    node: NodeNote | None
    error: BaseException


@dataclass(slots=True)
class Log:
    """The record of a run: events, near misses, failures and statistics.

    Attributes:
        events: the rewrites in order.
        near_misses: near misses by rule and node; only collected when `listen` is set.
        failures: passes that raised.
        stats: statistics by pass.
        findings: other findings of passes, as rows of a table by pass; only collected when `listen` is set.
        unsettled: how many times a `repeat` ended while its passes were still changing the model.
        listen: whether reasons are collected; they cost time.
        profile: whether every attempt is timed.
        limit: the largest number of events; at the limit every pass stops. Bisection replays prefixes with it.
    """

    events: list[Event] = field(default_factory=list)
    near_misses: dict[tuple[str, str], NearMiss] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    stats: dict[str, RuleStats] = field(default_factory=dict)
    findings: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    unsettled: int = 0
    listen: bool = False
    profile: bool = False
    limit: int | None = None

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and len(self.events) >= self.limit

    def of(self, rule: str) -> RuleStats:
        """The statistics of a rule."""
        stats = self.stats.get(rule)
        if stats is None:
            stats = self.stats[rule] = RuleStats()
        return stats


class LimitReached(Exception):  # noqa: N818 -- the end of a pass, no error
    """The limit of events is reached: a graph pass ends before its next rewrite."""


class _Events(ReadOnlySequence):
    """A read-only sequence of events, which are immutable themselves."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        return self._field[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._field)


class LogView:
    """A read-only view of the log for passes.

    Attributes:
        events: the rewrites so far, in order.
        listen: whether reasons of near misses are collected.
        full: whether the limit of events is reached, so that every pass stops.
    """

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def events(self) -> Sequence[Event]:
        """The rewrites so far."""
        return _Events(self._log.events)

    @property
    def listen(self) -> bool:
        """Whether reasons are collected."""
        return self._log.listen

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._log.full

    @property
    def limited(self) -> bool:
        """Whether there is a limit, so that the model must be whole after every event."""
        return self._log.limit is not None

    def show(self, rule: str, rows: Iterable[tuple[str, ...]]) -> None:
        """Add findings of a pass; they are kept if reasons are collected.

        Args:
            rule: the pass.
            rows: rows of a table.
        """
        if self._log.listen:
            self._log.findings.setdefault(rule, []).extend(rows)
