"""What is still to be shown of passes, and which golden cases show it: each to fire and to decline often enough."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from graphopt.fuzzing.seedlings import Seedling
from graphopt.fuzzing.subjects import EXACTER, kin
from graphopt.pipeline import registry

FIRES = ""
"""In place of a reason: that a pass fires."""

_OFTEN = 10
"""A pass is to fire so many times as often as it is to decline for one reason."""
_TOGETHER = (4, 8, 10, 14)
"""How many golden cases one model begins with."""
_EXPLORED = 0.12
"""Part of the cases that are drawn by how seldom they were, whatever they show."""
_SURE = 0.2
"""What shows a target so often is drawn by how much is lacking alone; what does so less often by less."""
_HOPE = 0.02
"""How often a case shows a target that it was never tried for."""
_AGAIN = 24
"""Models until the weights are computed again."""

Target = tuple[str, str]
"""A pass and the reason to decline, or `FIRES`."""


class Targets:
    """Chooses golden cases for models, those of passes that lack most first.

    Cases go together whose passes promise equally exact numbers, so that no pass is judged by a weaker promise than its
    own; and, where there are enough, cases of one opset.

    Args:
        seedlings: the golden cases.
        until: in how many models each pass is to fire; to decline, for each reason, in a tenth of them.
    """

    def __init__(self, seedlings: Iterable[Seedling], until: int) -> None:
        self.until = until
        self.cases = {f"{each.rule}/{each.case}": each for each in seedlings if each.rule not in EXACTER}
        self._of: dict[str, list[str]] = {}
        self._kin: dict[str, tuple[Any, ...]] = {}
        for name, each in self.cases.items():
            self._of.setdefault(each.rule, []).append(name)
            self._kin[each.rule] = self._kin.get(each.rule) or kin(registry().rule_class(each.rule))
        self.counts: Counter[Target] = Counter({(rule, FIRES): 0 for rule in self._of})
        self.tried: Counter[str] = Counter()
        self.shown: dict[str, Counter[str]] = {}
        self._left = 0
        self._drawn: list[Target] = []
        self._weights: dict[tuple[Any, ...], tuple[list[Target], list[float]]] = {}

    @property
    def done(self) -> bool:
        """Whether all was shown that can be expected to be."""
        return all(self._lacks(target) <= 0 for target in self.counts)

    def learn(self, sown: Sequence[str], fired: Iterable[str], declined: Mapping[str, Iterable[str]]) -> None:
        """What a model with these cases showed."""
        shown = {(rule, FIRES) for rule in fired if rule in self._of}
        shown |= {(rule, reason) for rule, reasons in declined.items() if rule in self._of for reason in reasons}
        self.counts.update(shown)
        self.tried.update(set(sown))
        for name in set(sown) & self.cases.keys():
            rule = self.cases[name].rule
            self.shown.setdefault(name, Counter()).update(reason for of, reason in shown if of == rule)

    def restore(self, fired: Mapping[str, int], declined: Mapping[str, Mapping[str, int]]) -> None:
        """Take over what an earlier part of the session counted."""
        self.counts.update({(rule, FIRES): n for rule, n in fired.items() if rule in self._of})
        for rule, reasons in declined.items():
            if rule in self._of:
                self.counts.update({(rule, reason): n for reason, n in reasons.items()})

    def draw(self, seed: object) -> list[str]:
        """Cases for one model.

        Args:
            seed: where the choice comes from, beside what was learned.
        """
        rng = random.Random(f"{seed}/sown")
        if self._left <= 0:
            self._weigh()
        self._left -= 1
        first = self._case(rng, self._drawn_from(rng, ()))
        chosen = [first]
        group = self._kin[self.cases[first].rule]
        count = rng.choice(_TOGETHER)
        for _ in range(4 * count):
            name = self._case(rng, self._drawn_from(rng, group))
            same = self.cases[name].opset == self.cases[first].opset or len(chosen) < count // 4
            if same and name not in chosen:
                chosen.append(name)
            if len(chosen) == count:
                break
        return chosen

    def _drawn_from(self, rng: random.Random, group: tuple[Any, ...]) -> Target | str:
        targets, weights = self._weights[group]
        if rng.random() < _EXPLORED or not weights or not weights[-1]:
            rules = {rule for rule, _ in targets}
            some = rng.sample([name for rule in sorted(rules) for name in self._of[rule]], 1)
            return min(some + rng.sample(self._of[self.cases[some[0]].rule], 1), key=lambda name: self.tried[name])
        return rng.choices(targets, cum_weights=weights)[0]

    def _case(self, rng: random.Random, target: Target | str) -> str:
        if isinstance(target, str):
            return target
        names = self._of[target[0]]
        return rng.choices(names, [self._part(name, target) ** 2 for name in names])[0]

    def _lacks(self, target: Target) -> int:
        needed = self.until if target[1] == FIRES else -(-self.until // _OFTEN)
        return needed - self.counts[target]

    def _part(self, name: str, target: Target) -> float:
        """In what part of its trials a case shows a target, as far as is known."""
        expected = 0.9 if target[1] == FIRES and self.cases[name].fires else _HOPE
        return (self.shown.get(name, Counter())[target[1]] + expected) / (self.tried[name] + 1)

    def _weigh(self) -> None:
        self._left = _AGAIN
        groups: dict[tuple[Any, ...], list[tuple[Target, float]]] = {(): []}
        for target in sorted(self.counts):
            part = max(self._part(name, target) for name in self._of[target[0]])
            weight = max(self._lacks(target), 0) * min(1.0, part / _SURE)
            for group in ((), self._kin[target[0]]):
                groups.setdefault(group, []).append((target, weight))
        self._weights = {
            group: ([target for target, _ in found], list(accumulate(weight for _, weight in found)))
            for group, found in groups.items()
        }
