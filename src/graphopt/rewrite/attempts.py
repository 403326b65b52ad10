"""Dispatch: which rules are tried at the nodes of each operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphopt.ir import Node, Value
from graphopt.match.makers import STORED, Ways, may_fit
from graphopt.rewrite.rewriter import Rewriter
from graphopt.rewrite.rule import Fired, OpRule, Outcome, PatternRule, Rule, is_pattern, ways_of
from graphopt.rewrite.waiting import Waiting

RuleOrWaiting = OpRule | PatternRule | Waiting
Run = Callable[[Node, Rewriter], Outcome]


class RuleAttempt:
    """A rule as it is tried at the nodes of one operator.

    Args:
        name: the rule's name.
        run: matches and rewrites a node; for a rule that is not imported yet, it imports the rule first.
        ways: the operators that must produce the node's inputs.
    """

    __slots__ = ("name", "run", "ways")

    def __init__(self, name: str, run: Run, ways: Ways) -> None:
        self.name = name
        self.run = run
        self.ways = ways


_MOST_MAKERS = 1 << 12
"""Most sets of producers that are cached per operator: no family of models has thousands."""


class Attempts:
    """The rules that are tried at the nodes of one operator, in order.

    Args:
        all: the attempts of all rules.
    """

    __slots__ = ("_by_makers", "all")

    def __init__(self) -> None:
        self.all: list[RuleAttempt] = []
        self._by_makers: dict[frozenset[str | None], list[RuleAttempt]] = {}

    def at(self, node: Node) -> list[RuleAttempt]:
        """The attempts that the producers of a node's inputs do not rule out."""
        makers = frozenset(
            [v.producer.op if v.producer is not None else STORED if v.tensor is not None else None
             for v in node.inputs if v is not None]
        )  # fmt: skip
        found = self._by_makers.get(makers)
        if found is None:
            if len(self._by_makers) >= _MOST_MAKERS:
                self._by_makers.clear()
            found = self._by_makers[makers] = [each for each in self.all if may_fit(each.ways, makers)]
        return found


_MOST_TABLES = 64
"""Most tables that are cached: a run at the highest level needs about a dozen, which similar models share."""

Table = Mapping[str, Attempts]
"""The attempts by operator."""


class Tables:
    """Dispatch tables, cached across runs."""

    def __init__(self) -> None:
        self._entries: dict[tuple[RuleOrWaiting, int, bool], list[tuple[str, RuleAttempt]]] = {}
        self._tables: dict[tuple[tuple[RuleOrWaiting, ...], int, bool], Table] = {}

    def entry(self, rule: RuleOrWaiting, opset: int, *, silent: bool) -> list[tuple[str, RuleAttempt]]:
        """The attempts of a rule by operator, cached; for the arguments see `attempts_of`."""
        found = self._entries.get((rule, opset, silent))
        if found is None:
            found = self._entries[rule, opset, silent] = attempts_of(rule, opset, silent=silent)
        return found

    def table(self, rules: tuple[RuleOrWaiting, ...], opset: int, *, silent: bool) -> Table:
        """The attempts of several rules by operator, in the order of the rules."""
        found = self._tables.get((rules, opset, silent))
        if found is None:
            made: dict[str, Attempts] = {}
            for rule in rules:
                for op, attempt in self.entry(rule, opset, silent=silent):
                    if op not in made:
                        made[op] = Attempts()
                    made[op].all.append(attempt)
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            found = self._tables[rules, opset, silent] = made
        return found


def attempts_of(rule: RuleOrWaiting, opset: int, *, silent: bool) -> list[tuple[str, RuleAttempt]]:
    """The attempts of a rule, by operator.

    A rule whose index states where it is tried is imported at the first such node: a third of the rules whose operators
    a model has never meet one.

    Args:
        rule: the rule.
        opset: the standard's version in the graph.
        silent: whether reasons for a mismatch are not needed.
    """
    if not isinstance(rule, Waiting):
        return _at_once(rule, opset, silent=silent)
    if silent and rule.card.asked is not None:
        return _when_asked(rule, opset)
    return _at_once(rule.rule, opset, silent=silent)


def _at_once(rule: Rule, opset: int, *, silent: bool) -> list[tuple[str, RuleAttempt]]:
    if not rule.knows_opset(opset):
        return []
    run = _run(rule, silent=silent)
    return [(op, RuleAttempt(rule.name, run, ways)) for op, ways in ways_of(rule, silent=silent)]


def _when_asked(waiting: Waiting, opset: int) -> list[tuple[str, RuleAttempt]]:
    def first(node: Node, rw: Rewriter) -> Outcome:
        rule = waiting.rule
        run = _run(rule, silent=True) if rule.knows_opset(opset) else _nothing
        for _, attempt in made:
            attempt.run = run
        return run(node, rw)

    made = [(op, RuleAttempt(waiting.name, first, ways)) for op, ways in waiting.card.ways()]
    return made


def _nothing(node: Node, rw: Rewriter) -> Outcome:
    """The attempt of a rule in a graph of an opset that it does not support."""
    return None


def _run(rule: Any, *, silent: bool) -> Run:
    """The function that tries a rule at a node."""
    return _match_and_rewrite(rule, silent=silent) if is_pattern(rule) else rule.rewrite


def _match_and_rewrite(rule: PatternRule, *, silent: bool) -> Run:
    """Match and rewrite; if the rewrite declines, further matches are tried. Reasons are given unless `silent`."""
    match_at = rule.compiled.match

    def attempt(node: Node, rw: Rewriter) -> Outcome:
        made: list[Value | Sequence[Value | None] | Fired] = []
        match_at(node, lambda m: made.append(rule.rewrite(m, rw)), silent=silent)
        result = made[0]
        if isinstance(result, Fired):
            return result
        return rw.replace(node, [result] if isinstance(result, Value) else result)

    return attempt
