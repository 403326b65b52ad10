"""What rules try at the nodes of each operator, and at which nodes they are asked at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphopt.ir import Node, Value
from graphopt.match.makers import STORED, Ways, may_fit
from graphopt.rewrite.events import RuleStats
from graphopt.rewrite.rewriter import Rewriter
from graphopt.rewrite.rule import Fired, OpRule, Outcome, PatternRule, Rule, is_pattern, ways_of
from graphopt.rewrite.waiting import Waiting

RuleOrWaiting = OpRule | PatternRule | Waiting
Run = Callable[[Node, Rewriter], Outcome]


class RuleAttempt:
    """What a rule tries at the nodes of one operator.

    Args:
        name: the rule's name.
        run: what it does at a node; of a rule that is not imported yet, to import it and do that from then on.
        stats: its statistics.
        ways: what must compute the inputs there.
    """

    __slots__ = ("name", "run", "stats", "ways")

    def __init__(self, name: str, run: Run, stats: RuleStats, ways: Ways) -> None:
        self.name = name
        self.run = run
        self.stats = stats
        self.ways = ways


class Attempts:
    """What is tried at the nodes of one operator, in order.

    Args:
        all: the attempts of all rules.
    """

    __slots__ = ("_by_makers", "all")

    def __init__(self) -> None:
        self.all: list[RuleAttempt] = []
        self._by_makers: dict[frozenset[str | None], list[RuleAttempt]] = {}

    def at(self, node: Node) -> list[RuleAttempt]:
        """Those that what computes the inputs of a node leaves."""
        makers = frozenset(
            [v.producer.op if v.producer is not None else STORED if v.tensor is not None else None
             for v in node.inputs if v is not None]
        )  # fmt: skip
        found = self._by_makers.get(makers)
        if found is None:
            found = self._by_makers[makers] = [each for each in self.all if may_fit(each.ways, makers)]
        return found


def attempts_of(rule: RuleOrWaiting, stats: RuleStats, opset: int, *, silent: bool) -> list[tuple[str, RuleAttempt]]:
    """What a rule tries, by operator.

    A rule whose index says where it is asked is imported at the first such node: of those that a model has the
    operators for, a third meets none.

    Args:
        rule: the rule.
        stats: its statistics.
        opset: the standard's version in the graph.
        silent: nobody asks why it does not fit.
    """
    if not isinstance(rule, Waiting):
        return _at_once(rule, stats, opset, silent=silent)
    if silent and rule.card.asked is not None:
        return _when_asked(rule, stats, opset)
    return _at_once(rule.rule, stats, opset, silent=silent)


def _at_once(rule: Rule, stats: RuleStats, opset: int, *, silent: bool) -> list[tuple[str, RuleAttempt]]:
    if not rule.knows_opset(opset):
        return []
    run = _run(rule, silent=silent)
    return [(op, RuleAttempt(rule.name, run, stats, ways)) for op, ways in ways_of(rule, silent=silent)]


def _when_asked(waiting: Waiting, stats: RuleStats, opset: int) -> list[tuple[str, RuleAttempt]]:
    def first(node: Node, rw: Rewriter) -> Outcome:
        rule = waiting.rule
        run = _run(rule, silent=True) if rule.knows_opset(opset) else _nothing
        for _, attempt in made:
            attempt.run = run
        return run(node, rw)

    made = [(op, RuleAttempt(waiting.name, first, stats, ways)) for op, ways in waiting.card.ways()]
    return made


def _nothing(node: Node, rw: Rewriter) -> Outcome:
    """What a rule does in a graph whose opset it does not know."""
    return None


def _run(rule: Any, *, silent: bool) -> Run:
    """What a rule does at a node."""
    return _match_and_rewrite(rule, silent=silent) if is_pattern(rule) else rule.rewrite


def _match_and_rewrite(rule: PatternRule, *, silent: bool) -> Run:
    """Match and rewrite; where the rewrite declines, another way to fit is tried. Reasons are given unless `silent`."""
    match_at = rule.compiled.match

    def attempt(node: Node, rw: Rewriter) -> Outcome:
        made: list[Value | Sequence[Value | None] | Fired] = []
        match_at(node, lambda m: made.append(rule.rewrite(m, rw)), silent=silent)
        result = made[0]
        if isinstance(result, Fired):
            return result
        return rw.replace(node, [result] if isinstance(result, Value) else result)

    return attempt
