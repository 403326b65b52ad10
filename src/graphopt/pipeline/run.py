"""Execution of a pipeline on a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, NamedTuple

from graphopt.errors import UsageError
from graphopt.ir import Model, paused_gc
from graphopt.pipeline.pipeline import Pipeline, Repeat, Select, Together
from graphopt.pipeline.registry import Registry, registry
from graphopt.records import dataclass
from graphopt.rewrite import CUSTOM, FAMILIES, Driver, Log, Numerics, Rule
from graphopt.rewrite.attempts import Tables
from graphopt.rewrite.options import Options
from graphopt.rewrite.waiting import Waiting

_ROUNDS = 20
"""Most rounds of a `repeat`; if the last one still changes the model, the loop ends, and that is logged."""


class PassGroup(NamedTuple):
    """Passes that run together.

    Attributes:
        single: rules for one node at a time; they share a worklist.
        whole: passes over whole graphs; they run one after the other.
    """

    single: tuple[Waiting, ...]
    whole: tuple[Waiting, ...]


@dataclass(slots=True)
class Plan:
    """A pipeline with the passes that it selects.

    Attributes:
        pipeline: the pipeline.
        numerics: passes above this ceiling are left out unless the pipeline names them without a family.
        skip: passes to leave out.
        registry: the source of the passes.
        tables: dispatch tables: the passes to try at each operator.
    """

    pipeline: Pipeline
    numerics: Numerics = Numerics.ROUNDING
    skip: frozenset[str] = frozenset()
    registry: Registry = field(default_factory=registry)
    tables: Tables = field(default_factory=Tables)
    _passes: dict[str, Waiting] = field(default_factory=dict)
    _selected: dict[str, list[Waiting]] = field(default_factory=dict)
    _groups: dict[Together | Select, PassGroup] = field(default_factory=dict)

    @classmethod
    def shared(cls, pipeline: Pipeline, numerics: Numerics, skip: frozenset[str]) -> Plan:
        """The cached plan of these settings: making one takes longer than running a pass."""
        return _shared(pipeline, numerics, skip, registry())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle its settings only; the other process makes the plan anew, or takes it from its cache."""
        chosen = (self.pipeline, self.numerics, self.skip)
        return (Plan.shared, chosen) if self.registry is registry() else (Plan, (*chosen, self.registry))

    def __post_init__(self) -> None:
        unknown = [name for name in self.skip if name not in self.registry]
        for name in unknown:
            self.registry.rule_class(name)
        for selection in self.pipeline.selections():
            self.select(selection)

    def rule(self, name: str) -> Rule:
        """The pass of a name, instantiated once."""
        return self._pass(name).rule

    def _pass(self, name: str) -> Waiting:
        found = self._passes.get(name)
        if found is None:
            found = self._passes[name] = Waiting(self.registry.card(name), partial(self.registry.rule_class, name))
        return found

    def select(self, selection: Select) -> list[Waiting]:
        """The passes that a name or glob selects."""
        found = self._selected.get(selection.text)
        if found is None:
            found = self._selected[selection.text] = self._select(selection)
        return found

    def _select(self, selection: Select) -> list[Waiting]:
        glob = selection.family
        if glob is None:
            return [] if selection.text in self.skip else [self._pass(selection.text)]
        family, name, level = glob
        by_level = self.registry.by_family().get(family)
        if by_level is None and family not in (*FAMILIES, CUSTOM):
            raise UsageError(f"unknown pass family {family!r}; expected one of {', '.join((*FAMILIES, CUSTOM))}")
        cards = by_level.get(level, ()) if by_level is not None else ()
        if name != "*" and name not in [card.name for card in cards]:
            where = f"{self.registry.card(name).family}/{name}@{self.registry.card(name).level}"
            raise UsageError(f"{selection} is not a pass; {name} is {where}")
        return [
            self._pass(card.name)
            for card in cards
            if (card.default if name == "*" else card.name == name)
            and card.name not in self.skip
            and card.numerics <= self.numerics
        ]

    def group(self, stage: Together | Select) -> PassGroup:
        """The passes of a stage that run together."""
        found = self._groups.get(stage)
        if found is None:
            parts = stage.parts if isinstance(stage, Together) else (stage,)
            passes = list(dict.fromkeys([each for part in parts for each in self.select(part)]))
            single = tuple([each for each in passes if not each.card.whole])
            found = self._groups[stage] = PassGroup(single, tuple([each for each in passes if each.card.whole]))
        return found

    def names(self) -> list[str]:
        """All passes that would run, in order, without repetition."""
        rules = (rule.name for s in self.pipeline.selections() for rule in self.select(s))
        return list(dict.fromkeys(rules))


_KEPT = 16
"""Number of cached plans: a program has a few settings, a fuzzer thousands."""

_shared = lru_cache(maxsize=_KEPT)(Plan)
forget_plans = _shared.cache_clear


def execute(plan: Plan, model: Model, log: Log, *, strict: bool, check: bool, options: Options) -> Driver:
    """Run a plan over a model.

    Args:
        plan: the plan.
        model: the model, changed in place.
        log: the log of events.
        strict: re-raise exceptions of passes.
        check: verify the view after every rewrite.
        options: settings for the passes.
    """
    driver = Driver(model, log, strict=strict, check=check, options=options, tables=plan.tables)
    driver.rewriter.guards = True
    with paused_gc():
        driver.infer()
        _run(plan.pipeline, plan, driver)
    return driver


def _run(pipeline: Pipeline, plan: Plan, driver: Driver, *, again: bool = False) -> int:
    """Run the stages in order; `again` states that all of them run once more if anything fires."""
    count = 0
    for stage in pipeline.stages:
        if isinstance(stage, Repeat):
            count += _repeat(stage, plan, driver)
        else:
            count += _together(plan.group(stage), driver, again=again)
    return count


def _repeat(stage: Repeat, plan: Plan, driver: Driver) -> int:
    count = 0
    for number in range(_ROUNDS):
        done = _run(stage.body, plan, driver, again=number < _ROUNDS // 2)
        count += done
        if driver.log.full or (not done and not driver.refresh_types()):
            return count
    driver.log.unsettled += 1
    return count


def _together(group: PassGroup, driver: Driver, *, again: bool) -> int:
    start = perf_counter()
    count = driver.run_rules(group.single, once=again) if group.single else 0
    driver.log.of("worklist").seconds += perf_counter() - start
    for each in group.whole:
        waits = each.card.late and again
        if waits and not count:
            count = int(driver.refresh_types())  # newly known types may let other rules fire
        if not (waits and count):
            count += driver.run_pass(each)
    return count


def pipeline_of(passes: str | Iterable[str]) -> Pipeline:
    """A pipeline from text, or from names that run one after the other; without names, an empty pipeline.

    Raises:
        UsageError: the text is empty or malformed.
    """
    names = [passes] if isinstance(passes, str) else list(passes) if isinstance(passes, Iterable) else [passes]
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"passes: expected a pipeline or a list of pass names, found {type(name).__name__}")
    if not names:
        return Pipeline(())  # does nothing, as in onnxoptimizer
    text = ",".join(names)
    if not text.strip():
        raise UsageError("no passes given; expected a pipeline or a list of pass names")
    return Pipeline.parse(text)
