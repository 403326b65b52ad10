"""What happened to a model: one event for each rewrite, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from graphopt.ir import Node, shown_op
from graphopt.ir.seal import ReadOnlySequence
from graphopt.records import dataclass


class NodeNote(NamedTuple):
    """A node as an event remembers it.

    Attributes:
        op: operator, with its domain unless that is the standard one.
        name: node name.
        outputs: names of its outputs at the time.
    """

    op: str
    name: str
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, node: Node) -> NodeNote:
        """The note of a node."""
        names = [v.name if v is not None else "" for v in node.outputs]
        return tuple.__new__(cls, (node.op, node.name, (*names,)))  # `cls(...)` is Python code that does this

    def __str__(self) -> str:
        return f"{shown_op(self.op)}({', '.join(self.outputs)})"


@dataclass(frozen=True, slots=True)
class Event:
    """One rewrite.

    Attributes:
        index: its number in the run, from 0.
        rule: the pass that made it.
        graph: name of the graph it happened in.
        removed: nodes that are gone.
        added: nodes that are new.
        changed: nodes whose attributes or inputs were changed where they stand.
        bytes: constant data added minus constant data dropped.
        detail: anything else the pass wants to say.
        zeroed: weights that were set to zero because they cannot matter.
        bound: by how much that may change an output at most, for activations of magnitude 1.
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
        """One event for what several did; what one added and another removed again is left out."""
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
    """A place where a rule looked closely and declined.

    Attributes:
        rule: the pass.
        node: the node it looked at.
        reason: why not.
        form: the reason without what it names, by which equal ones are counted.
        function: the function of the model that the node is in; "" for the main graph and all bodies in it.
    """

    rule: str
    node: NodeNote
    reason: str
    form: str = ""
    function: str = ""


@dataclass(slots=True)
class RuleStats:
    """What one pass cost and did.

    Attributes:
        attempts: how often it was asked.
        hits: how often it rewrote.
        seconds: time spent in it; for rules of a common worklist only measured when profiling.
    """

    attempts: int = 0
    hits: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Failure:
    """A pass that raised; its changes were undone.

    Attributes:
        rule: the pass.
        node: the node it was at, or None.
        error: the exception.
    """

    rule: str
    node: NodeNote | None
    error: BaseException


@dataclass(slots=True)
class Log:
    """Everything a run leaves behind: events, near misses, failures and statistics.

    Attributes:
        events: the rewrites in order.
        near_misses: declined places by rule and place; only collected when `listen` is set.
        failures: passes that raised.
        stats: per pass.
        findings: what passes have to show besides, as rows of a table by pass; only collected when `listen` is set.
        unsettled: how many times a `repeat` ended while its passes were still changing the model.
        listen: whether reasons are wanted; they cost time.
        profile: whether every attempt is timed.
        limit: the most events to allow; at the limit every pass stops. Bisection replays prefixes with it.
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


class LimitReached(Exception):  # noqa: N818 -- a pass ends as was asked for, which is no error
    """The limit of events is reached: the pass over whole graphs that goes on to its next rewrite ends there."""


class _Events(ReadOnlySequence):
    """Events cannot be changed, so that they are shown as they are."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        return self._field[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._field)


class LogView:
    """The log as a pass may see it.

    Attributes:
        events: the rewrites so far, in order.
        listen: whether reasons of near misses are wanted.
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
        """Whether reasons are wanted."""
        return self._log.listen

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._log.full

    def show(self, rule: str, rows: Iterable[tuple[str, ...]]) -> None:
        """Add to what a pass has to show besides its rewrites; kept where reasons are wanted.

        Args:
            rule: the pass.
            rows: of a table.
        """
        if self._log.listen:
            self._log.findings.setdefault(rule, []).extend(rows)
