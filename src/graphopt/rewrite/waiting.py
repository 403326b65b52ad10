"""Metadata of passes whose code is not imported yet: a pass is imported only for a model that it may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from typing import Any

from graphopt.match.makers import Ways, strictest
from graphopt.records import dataclass
from graphopt.rewrite.rule import GraphPass, Level, Numerics, OpRule, PatternRule, Rule, ways_of

FUNCTIONS = "functions"
"""The entry among operators for a pass that only applies to models with model-local functions."""


@dataclass(frozen=True, slots=True)
class Card:
    """The metadata of a pass that pipelines need.

    Attributes:
        name: the pass name.
        family: its family.
        level: the lowest level that includes it.
        numerics: how exact it is.
        default: whether the levels include it.
        whole: whether it is a `GraphPass`.
        late: see `GraphPass`.
        needs: groups of operators: unless a model has one of each, the pass cannot apply.
        asked: the nodes at which it is tried if reasons are not collected, as JSON: operators, and the operators that
            must produce their inputs; None if unknown, and for a `GraphPass`.
    """

    name: str
    family: str
    level: Level
    numerics: Numerics
    default: bool
    whole: bool
    late: bool
    needs: tuple[frozenset[str], ...] = ()
    asked: Sequence[Any] | None = None
    _ways: list[tuple[str, Ways]] = field(default_factory=list, compare=False)

    @classmethod
    def of(
        cls, rule: type[Rule], needs: tuple[frozenset[str], ...] = (), asked: Sequence[Any] | None = None
    ) -> Card:  # fmt: skip
        """The card of an imported pass."""
        whole, late = issubclass(rule, GraphPass), getattr(rule, "late", False)
        return cls(rule.name, rule.family, rule.level, rule.numerics, rule.default, whole, late, needs, asked)

    @classmethod
    def complete(cls, rule: type[Rule]) -> Card:
        """The card of an imported pass with its needs, for which its pattern is traced."""
        if issubclass(rule, PatternRule):
            groups = {frozenset(rule().ops), *rule().compiled.required}
        else:
            groups = {frozenset(rule.ops)} if issubclass(rule, (OpRule, GraphPass)) and rule.ops else set()
            if issubclass(rule, OpRule) and rule.sources:
                groups.add(frozenset(rule.sources))
        groups.update(map(frozenset, rule.needs))
        asked = None if issubclass(rule, GraphPass) else _as_json(ways_of(rule(), silent=True))
        return cls.of(rule, tuple(sorted(strictest(groups), key=sorted)), asked)

    @classmethod
    def from_record(cls, name: str, record: Mapping[str, Any]) -> Card:
        """Read a record written by `record`.

        Raises:
            KeyError: an entry is missing, or there is no level or numerics of that name.
        """
        level, numerics = Level[record["level"].upper()], Numerics[record["numerics"].upper()]
        needs = tuple([frozenset(group) for group in record["needs"]])
        flags = (record["default"], record["whole"], record["late"])
        return cls(name, record["family"], level, numerics, *flags, needs, record.get("asked"))

    def record(self) -> dict[str, Any]:
        """The card as JSON."""
        asked = {} if self.asked is None else {"asked": self.asked}
        return {
            "family": self.family, "level": str(self.level), "numerics": str(self.numerics), "default": self.default,
            "whole": self.whole, "late": self.late, "needs": [sorted(group) for group in self.needs],
            **asked,
        }  # fmt: skip

    def ways(self) -> list[tuple[str, Ways]]:
        """The operators at which it is tried, with those that must produce the inputs; the list must not be changed."""
        if not self._ways:
            found = [(ops, tuple([tuple(map(frozenset, way)) for way in ways])) for ops, ways in self.asked or ()]
            self._ways.extend([(op, ways) for ops, ways in found for op in ops])
        return self._ways

    def lacks(self, present: Set[str]) -> bool:
        """Whether the pass cannot apply to a model with these operators."""
        for group in self.needs:  # noqa: SIM110 -- a generator would cost more than the comparisons
            if present.isdisjoint(group):
                return True
        return False


def _as_json(ways: Sequence[tuple[str, Ways]]) -> list[Any]:
    """The form of `Card.asked`: operators with the same ways are grouped."""
    found: dict[Ways, list[str]] = {}
    for op, each in ways:
        found.setdefault(each, []).append(op)
    return [[ops, [[sorted(group) for group in way] for way in ways]] for ways, ops in found.items()]


@dataclass(slots=True, eq=False)
class Waiting:
    """A pass of a pipeline, imported on first use.

    Attributes:
        card: its metadata.
        load: imports its class.
    """

    card: Card
    load: Callable[[], type[Rule]]
    _rule: Rule | None = field(default=None)

    @property
    def name(self) -> str:
        """The pass name."""
        return self.card.name

    @property
    def rule(self) -> Rule:
        """The pass."""
        if self._rule is None:
            self._rule = self.load()()
        return self._rule
