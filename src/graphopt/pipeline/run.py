"""Running a pipeline over a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from graphopt.errors import UsageError
from graphopt.ir import Model, paused_gc
from graphopt.pipeline.pipeline import Pipeline, Repeat, Select, Together
from graphopt.pipeline.registry import Registry, registry
from graphopt.rewrite import Driver, GraphPass, Log, Numerics, OpRule, PatternRule, Rule
from graphopt.rewrite.options import Options

_ROUNDS = 20
"""How often a `repeat` may go round; a pipeline that is still changing then is left where it is, and that is logged."""


@dataclass(slots=True)
class Plan:
    """A pipeline with the passes that it stands for.

    Attributes:
        pipeline: the pipeline.
        numerics: passes above this ceiling are left out where the pipeline does not name them.
        skip: passes to leave out.
        registry: where passes come from.
        unsettled: rounds of `repeat` that ended while still changing.
    """

    pipeline: Pipeline
    numerics: Numerics = Numerics.ROUNDING
    skip: frozenset[str] = frozenset()
    registry: Registry = field(default_factory=registry)
    unsettled: int = 0
    _rules: dict[str, Rule] = field(default_factory=dict)
    _selected: dict[str, list[Rule]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.skip if name not in self.registry]
        for name in unknown:
            self.registry.rule_class(name)
        for selection in self.pipeline.selections():
            self.select(selection)

    def rule(self, name: str) -> Rule:
        """The pass of a name, made once."""
        found = self._rules.get(name)
        if found is None:
            found = self._rules[name] = self.registry.rule_class(name)()
        return found

    def select(self, selection: Select) -> list[Rule]:
        """The passes that a name or glob stands for."""
        found = self._selected.get(selection.text)
        if found is None:
            found = self._selected[selection.text] = self._select(selection)
        return found

    def _select(self, selection: Select) -> list[Rule]:
        glob = selection.family
        if glob is None:
            return [] if selection.text in self.skip else [self.rule(selection.text)]
        family, level = glob
        return [
            self.rule(name)
            for name in self.registry.names()
            if name not in self.skip and self._fits(self.registry.rule_class(name), family, level)
        ]

    def _fits(self, rule: type[Rule], family: str, level: int) -> bool:
        return rule.default and rule.family == family and rule.level == level and rule.numerics <= self.numerics

    def names(self) -> list[str]:
        """All passes that would run, in order, without repetition."""
        rules = (rule.name for s in self.pipeline.selections() for rule in self.select(s))
        return list(dict.fromkeys(rules))


def execute(plan: Plan, model: Model, log: Log, *, strict: bool, check: bool, options: Options) -> Driver:
    """Run a plan over a model.

    Args:
        plan: what to run.
        model: the model, changed in place.
        log: where events go.
        strict: re-raise what a pass raises.
        check: verify the view after every rewrite.
        options: settings for the passes.
    """
    driver = Driver(model, log, strict=strict, check=check, options=options)
    with paused_gc():
        driver.infer()
        _run(plan.pipeline, plan, driver)
    return driver


def _run(pipeline: Pipeline, plan: Plan, driver: Driver, *, again: bool = False) -> int:
    """Run the stages in order; `again` says that all of this is run once more if anything fires."""
    count = 0
    for stage in pipeline.stages:
        if isinstance(stage, Repeat):
            count += _repeat(stage, plan, driver)
        elif isinstance(stage, Together):
            count += _together([rule for part in stage.parts for rule in plan.select(part)], driver, again=again)
        else:
            count += _together(plan.select(stage), driver, again=again)
    return count


def _repeat(stage: Repeat, plan: Plan, driver: Driver) -> int:
    count = 0
    for number in range(_ROUNDS):
        done = _run(stage.body, plan, driver, again=number < _ROUNDS // 2)
        count += done
        if driver.log.full or (not done and not driver.refresh_types()):
            return count
    plan.unsettled += 1
    return count


def _together(rules: Sequence[Rule], driver: Driver, *, again: bool) -> int:
    rules = list(dict.fromkeys(rules))
    single = [rule for rule in rules if isinstance(rule, (OpRule, PatternRule))]
    start = perf_counter()
    count = driver.run_rules(single, once=again) if single else 0
    driver.log.of("worklist").seconds += perf_counter() - start
    for rule in rules:
        if not isinstance(rule, GraphPass):
            continue
        waits = rule.late and again
        if waits and not count:
            count = int(driver.refresh_types())  # what is known now may be something for the others
        if not (waits and count):
            count += driver.run_pass(rule)
    return count


def pipeline_of(passes: str | Iterable[str]) -> Pipeline:
    """A pipeline from text, or from names that run one after the other.

    Raises:
        UsageError: there is nothing in it, or it is malformed.
    """
    names = [passes] if isinstance(passes, str) else list(passes) if isinstance(passes, Iterable) else [passes]
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"passes: expected a pipeline or a list of pass names, found {type(name).__name__}")
    text = ",".join(names)
    if not text.strip():
        raise UsageError("no passes given; expected a pipeline or a list of pass names")
    return Pipeline.parse(text)
