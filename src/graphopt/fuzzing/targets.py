"""What is still to be shown of passes, and which golden cases show it: each to fire and to decline often enough."""

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
"""In place of a reason: that a pass fires."""

_OFTEN = 10
"""A pass is to fire so many times as often as it is to decline for one reason."""
_TOGETHER = (4, 8, 12, 16)
"""How many golden cases one model begins with."""
_EXPLORED = 0.04
"""Part of the cases that are drawn by how seldom they were, whatever they show."""
_SURE = 0.2
"""What shows a target so often is drawn by how much is lacking alone; what does so less often by less."""
_HOPE = 0.02
"""How often a case shows a target that it was never tried for."""
_ELSEWHERE = 0.08
"""Part of the models whose golden cases are all taken to another opset."""
_OPSETS = tuple(range(7, 26))
_AGAIN = {True: 8, False: 20}
"""In how many models a variant is that shows that a pass fires, or a reason to decline; more where few are known."""
_ALIKE = 0.8
"""Part of the models whose cases are all to fire, or all to decline: where nothing fires there is little to judge."""
_EVEN = 2
"""How much more that is drawn of which a larger part lacks, as a power of this part."""
_REPEATED, _DERIVED = 0.75, 0.9
"""Where variants are known that show a target, one of them is drawn, or made of one of them; else one of a case."""
_STEPS = 3
"""How many changes are made to a golden case at most, one after the other."""
_DRAWS = 4
_LATEST = 100
_AT_ONCE = 10
"""Targets that one model shows where there are enough."""

Target = tuple[str, str]
"""A pass and the reason to decline, or `FIRES`."""
Group = tuple[Any, ...]


@dataclass(slots=True)
class ModelShown:
    """What one model showed.

    Attributes:
        planted: the fragments that are in it, by name: what of its own pass each showed.
        fired: the passes that fired.
        declined: the passes that declined, and why.
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
    """Chooses golden cases for models, those of passes that lack most first.

    Cases go together whose passes promise equally exact numbers, so that no pass is judged by a weaker promise than its
    own, and that are of one opset and context. Variants of a case that showed what lacks are set into further models,
    and varied once more.

    Args:
        seedlings: the golden cases.
        until: in how many models each pass is to fire; to decline, for each reason, in a tenth of them.
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
        """Whether all was shown that can be expected to be."""
        return all(self._lacks(target, self._now) <= 0 for target in self._now)

    def count(self, model: ModelShown) -> None:
        """Count what a model showed, from which nothing is learned yet."""
        self._now.update(self._shown_by(model))

    def learn(self, models: Iterable[ModelShown]) -> None:
        """What some models showed."""
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
        """Take over what an earlier part of the session counted."""
        counts = {(rule, FIRES): n for rule, n in fired.items() if rule in self._of}
        for rule, reasons in declined.items():
            counts |= {(rule, reason): n for reason, n in reasons.items() if rule in self._of}
        self._take(counts)
        self._now.update(counts)

    # -- drawing

    def draw(self, seed: str, index: int) -> list[str]:
        """Cases for one model.

        Args:
            seed: where the choice comes from, beside what was learned.
            index: the model's number.
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
        """Cases at an opset that is not theirs."""
        opset = rng.choice(_OPSETS)
        names = {self._any(rng, place): None for _ in range(rng.choice(_TOGETHER))}
        return [
            str(FragmentName(FragmentName.read(name).case, opset, (index,) if rng.random() < 0.5 else ()))
            for name in names
        ]

    def _first(self, rng: random.Random) -> tuple[Target | None, Group]:
        """A target, and a group and opset at which it may be shown."""
        target = self._plan(()).draw(rng)
        if target is not None and target in self._places and rng.random() < _REPEATED:
            return target, rng.choice(self._places[target])
        if target is None or rng.random() < _EXPLORED:
            case = rng.choice(self._of[rng.choice(list(self._of))])
            return None, (self._group[case], self.cases[case].opset)
        case = self._case(rng, target, self._of[target[0]])
        return target, (self._group[case], self.cases[case].opset)

    def _any(self, rng: random.Random, place: Group) -> str:
        """A case that was seldom tried."""
        of = self._at[place]
        names = [rng.choice(of[rng.choice(list(of))]) for _ in range(_DRAWS)]
        return min(names, key=lambda name: self.tried[name])

    def _fragment(self, rng: random.Random, target: Target, place: Group, number: int) -> str:
        """A case or variant that may show a target."""
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
        """In how many models a variant is to be that shows a target."""
        known = sum(len(self._known[target, place]) for place in self._places[target])
        return max(_AGAIN[target[1] == FIRES], self._needed(target) / known)

    def _listed(self, target: Target, place: Group) -> list[str]:
        """Fragments that showed a target, the last of them, which are likely to be at hand."""
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
        """In what part of its trials a case shows a target, as far as is known."""
        expected = 0.9 if target[1] == FIRES and self.cases[name].fires else _HOPE
        shown = self.shown.get(name)
        return ((shown[target[1]] if shown else 0) + expected) / (self.tried[name] + 1)

    def _plan(self, place: Group, fires: bool | None = None) -> _Plan:
        """The targets of a group and opset, or all, by what lacks and how likely it is to be shown.

        Args:
            place: the group and opset; empty for all.
            fires: only that passes fire, or only that they decline.
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
        """Weights by the models that are needed: of passes with few others to go with, a model shows fewer."""
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
