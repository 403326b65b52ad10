"""The targets that passes still lack, to fire and to decline often enough, and the golden cases that reach them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from graphopt.fuzzing.seedlings import Seedling
from graphopt.fuzzing.stock import FragmentName
from graphopt.fuzzing.subjects import EXACTER, kin
from graphopt.pipeline import registry

FIRES = ""
"""In place of a reason: the target that a pass fires."""

_OFTEN = 10
"""A pass is to fire this many times as often as it is to decline for one reason."""
_TOGETHER = (4, 8, 12, 16)
"""Numbers of golden cases that one model begins with."""
_EXPLORED = 0.04
"""Fraction of the cases that are drawn by how rarely they were tried, whatever they show."""
_SURE = 0.2
"""From this success rate on, targets are drawn only by how much they lack; with lower rates less often."""
_HOPE = 0.02
"""Prior probability that a case shows a target that it was never tried for."""
_ELSEWHERE = 0.08
"""Fraction of the models whose golden cases are all converted to another opset."""
_OPSETS = tuple(range(7, 26))
_AGAIN = {True: 8, False: 20}
"""How many models a variant occurs in that shows a pass firing (True) or declining (False); more if few are known."""
_ALIKE = 0.8
"""Fraction of the models whose cases all fire, or all decline: if nothing fires there is little to judge."""
_EVEN = 2
"""Targets are drawn in proportion to this power of the fraction that they lack."""
_REPEATED, _DERIVED = 0.75, 0.9
"""Probabilities to draw a known variant that shows a target, or to derive a new one from it; else from a case."""
_STEPS = 3
"""The largest number of successive changes of a golden case."""
_DRAWS = 4
_LATEST = 100
_AT_ONCE = 10
"""Targets that one model shows if there are enough."""

Target = tuple[str, str]
"""A pass and a reason to decline, or `FIRES`."""
Group = tuple[Any, ...]


@dataclass(slots=True)
class ModelShown:
    """What a model showed.

    Attributes:
        planted: the fragments in it, by name, each with the targets of its own pass that it showed.
        fired: the passes that fired.
        declined: the passes that declined, with their reasons.
        sown: the fragments that it was to begin with.
    """

    planted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fired: Iterable[str] = ()
    declined: Mapping[str, Iterable[str]] = field(default_factory=dict)
    sown: Sequence[str] = ()


@dataclass(slots=True)
class _Plan:
    """Targets to draw from, with accumulated weights."""

    targets: list[Target]
    weights: list[float]

    def draw(self, rng: random.Random) -> Target | None:
        if not self.weights or not self.weights[-1]:
            return None
        return rng.choices(self.targets, cum_weights=self.weights)[0]


class Targets:
    """Chooses golden cases for models, preferring those of passes that lack most.

    Cases are combined only if their passes promise equally exact numerics, so that none is judged by a weaker promise
    than its own, and if they share the opset and context. Variants of a case that reached a lacking target are set into
    further models, and varied again.

    Args:
        seedlings: the golden cases.
        until: on how many models each pass is to fire; for each reason it is to decline on a tenth as many.
    """

    def __init__(self, seedlings: Iterable[Seedling], until: int) -> None:
        self.until = until
        self.cases = {each.name: each for each in seedlings if each.rule not in EXACTER}
        self._of: dict[str, list[str]] = {}
        self._group: dict[str, Group] = {}
        for name, each in self.cases.items():
            self._of.setdefault(each.rule, []).append(name)
            self._group[name] = (kin(registry().rule_class(each.rule)), each.context)
        self._at: dict[Group, dict[str, list[str]]] = {}
        for name, each in self.cases.items():
            self._at.setdefault((self._group[name], each.opset), {}).setdefault(each.rule, []).append(name)
        self.counts: Counter[Target] = Counter({(rule, FIRES): 0 for rule in self._of})
        self._now: Counter[Target] = Counter(self.counts)
        self._reasons: dict[str, set[str]] = {}
        self.tried: Counter[str] = Counter()
        self.shown: dict[str, Counter[str]] = {}
        self._used: Counter[str] = Counter()
        self._known: dict[tuple[Target, Group], dict[str, None]] = {}
        self._places: dict[Target, list[Group]] = {}
        self._lists: dict[tuple[Target, Group], list[str]] = {}
        self._plans: dict[tuple[Group, bool | None], _Plan] = {}

    @property
    def done(self) -> bool:
        """Whether all targets that can be expected were reached."""
        return all(self._lacks(target, self._now) <= 0 for target in self._now)

    def count(self, model: ModelShown) -> None:
        """Count what a model showed, without learning from it yet."""
        self._now.update(self._shown_by(model))

    def learn(self, models: Iterable[ModelShown]) -> None:
        """Learn from some models."""
        for model in models:
            self._take(Counter(self._shown_by(model)))
            for name in model.sown:
                self._used[name] += 1
                told = FragmentName.read(name)
                if told.case in self.cases and len(told.steps) < 2:
                    self.tried[told.case] += 1
            for name, shown in model.planted.items():
                self._note(name, shown)
        self._plans.clear()
        self._lists.clear()

    def _note(self, name: str, shown: Sequence[str]) -> None:
        told = FragmentName.read(name)
        if told.case not in self.cases:
            return
        if len(told.steps) < 2:
            self.shown.setdefault(told.case, Counter()).update(set(shown))
        rule, place = self.cases[told.case].rule, (self._group[told.case], told.opset or self.cases[told.case].opset)
        for each in shown if rule in self._at.get(place, ()) else ():
            known = self._known.setdefault(((rule, each), place), {})
            if not known:
                self._places.setdefault((rule, each), []).append(place)
            known[name] = None

    def _shown_by(self, model: ModelShown) -> Iterator[Target]:
        yield from ((rule, FIRES) for rule in model.fired if rule in self._of)
        for rule, reasons in model.declined.items():
            yield from ((rule, reason) for reason in set(reasons) if rule in self._of)

    def _take(self, counts: Mapping[Target, int]) -> None:
        self.counts.update(counts)
        for rule, reason in counts:
            if reason != FIRES:
                self._reasons.setdefault(rule, set()).add(reason)

    def restore(self, fired: Mapping[str, int], declined: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counts of an earlier part of the session."""
        counts = {(rule, FIRES): n for rule, n in fired.items() if rule in self._of}
        for rule, reasons in declined.items():
            counts |= {(rule, reason): n for reason, n in reasons.items() if rule in self._of}
        self._take(counts)
        self._now.update(counts)

    # -- drawing

    def draw(self, seed: str, index: int) -> list[str]:
        """Cases for one model.

        Args:
            seed: the seed of the choice, which also depends on what was learned.
            index: the model's index.
        """
        rng = random.Random(f"{seed}/{index}/sown")
        target, place = self._first(rng)
        if rng.random() < _ELSEWHERE:
            return self._elsewhere(rng, place, index)
        chosen: dict[str, None] = {}
        wanted: set[Target | None] = set()
        alike = target is not None and rng.random() < _ALIKE
        count, plan = rng.choice(_TOGETHER), self._plan(place, target[1] == FIRES if target and alike else None)
        for at in range(2 * count):
            if at:
                target = None if rng.random() < _EXPLORED else plan.draw(rng)
            if target is None:
                chosen[self._any(rng, place)] = None
            elif target not in wanted:
                wanted.add(target)
                chosen[self._fragment(rng, target, place, 2 * count * index + at)] = None
            if len(chosen) == count:
                break
        return list(chosen)

    def _elsewhere(self, rng: random.Random, place: Group, index: int) -> list[str]:
        """Cases converted to another opset."""
        opset = rng.choice(_OPSETS)
        names = {self._any(rng, place): None for _ in range(rng.choice(_TOGETHER))}
        return [
            str(FragmentName(FragmentName.read(name).case, opset, (index,) if rng.random() < 0.5 else ()))
            for name in names
        ]

    def _first(self, rng: random.Random) -> tuple[Target | None, Group]:
        """A target, and a group and opset at which it may be reached."""
        target = self._plan(()).draw(rng)
        if target is not None and target in self._places and rng.random() < _REPEATED:
            return target, rng.choice(self._places[target])
        if target is None or rng.random() < _EXPLORED:
            case = rng.choice(self._of[rng.choice(list(self._of))])
            return None, (self._group[case], self.cases[case].opset)
        case = self._case(rng, target, self._of[target[0]])
        return target, (self._group[case], self.cases[case].opset)

    def _any(self, rng: random.Random, place: Group) -> str:
        """A case that was rarely tried."""
        of = self._at[place]
        names = [rng.choice(of[rng.choice(list(of))]) for _ in range(_DRAWS)]
        return min(names, key=lambda name: self.tried[name])

    def _fragment(self, rng: random.Random, target: Target, place: Group, number: int) -> str:
        """A case or variant that may reach a target."""
        known, lot = self._listed(target, place), rng.random()
        if known:
            drawn = [rng.choice(known) for _ in range(_DRAWS)]
            best = min(drawn, key=lambda name: self._used[name])
            if lot < _REPEATED and self._used[best] < self._often(target):
                return best
            told = FragmentName.read(drawn[0])
            if lot < _DERIVED and len(told.steps) < _STEPS:
                return str(told._replace(steps=(*told.steps, number)))
        case = self._case(rng, target, self._at[place][target[0]])
        return str(FragmentName(case, steps=(number,) if self.tried[case] else ()))

    def _often(self, target: Target) -> float:
        """In how many models a variant that reaches a target is to occur."""
        known = sum(len(self._known[target, place]) for place in self._places[target])
        return max(_AGAIN[target[1] == FIRES], self._needed(target) / known)

    def _listed(self, target: Target, place: Group) -> list[str]:
        """The latest fragments that reached a target, which are likely to be cached."""
        found = self._lists.get((target, place))
        if found is None:
            found = self._lists[target, place] = list(self._known.get((target, place), ()))[-_LATEST:]
        return found

    def _case(self, rng: random.Random, target: Target, names: Sequence[str]) -> str:
        return rng.choices(names, [self._part(name, target) ** 2 for name in names])[0]

    def _needed(self, target: Target) -> int:
        return self.until if target[1] == FIRES else -(-self.until // _OFTEN)

    def _lacks(self, target: Target, counts: Counter[Target] | None = None) -> int:
        return self._needed(target) - (self.counts if counts is None else counts)[target]

    def _part(self, name: str, target: Target) -> float:
        """The estimated fraction of its trials in which a case reaches a target."""
        expected = 0.9 if target[1] == FIRES and self.cases[name].fires else _HOPE
        shown = self.shown.get(name)
        return ((shown[target[1]] if shown else 0) + expected) / (self.tried[name] + 1)

    def _plan(self, place: Group, fires: bool | None = None) -> _Plan:
        """The targets of a group and opset, or all, weighted by what they lack and how likely they are to be reached.

        Args:
            place: the group and opset; empty for all.
            fires: whether only targets to fire or only targets to decline; both if None.
        """
        plan = self._plans.get((place, fires))
        if plan is None:
            of = self._at[place] if place else self._of
            targets = [each for each in self._targets(of) if fires is None or fires == (each[1] == FIRES)]
            weights = [self._weight(target, of[target[0]], place) for target in targets]
            if not place:
                weights = self._by_models(targets, weights)
            plan = self._plans[place, fires] = _Plan(targets, list(accumulate(weights)))
        return plan

    def _by_models(self, targets: Sequence[Target], weights: Sequence[float]) -> list[float]:
        """Weights by the number of models needed: a pass with few compatible ones gets fewer targets per model."""
        groups = [self._group[self._of[rule][0]] for rule, _ in targets]
        many = Counter(group for group, weight in zip(groups, weights, strict=True) if weight)
        return [weight * max(1.0, _AT_ONCE / (many[group] or 1)) for group, weight in zip(groups, weights, strict=True)]

    def _targets(self, rules: Iterable[str]) -> Iterator[Target]:
        for rule in rules:
            yield rule, FIRES
            yield from ((rule, reason) for reason in sorted(self._reasons.get(rule, ())))

    def _weight(self, target: Target, names: Sequence[str], place: Group) -> float:
        part = max(self._lacks(target), 0) / self._needed(target)
        lacks = self._needed(target) * part ** (1 + _EVEN)
        if not lacks or target in self._places if not place else (target, place) in self._known:
            return lacks
        return lacks * min(1.0, max(self._part(name, target) for name in names) / _SURE)
