"""Running a pipeline over a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from graphopt.errors import UsageError
from graphopt.ir import Model, paused_gc
from graphopt.pipeline.pipeline import Pipeline, Repeat, Select, Together
from graphopt.pipeline.registry import Registry, registry
from graphopt.rewrite import CUSTOM, FAMILIES, Driver, Log, Numerics, Rule
from graphopt.rewrite.options import Options
from graphopt.rewrite.waiting import Card, Waiting

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
    _passes: dict[str, Waiting] = field(default_factory=dict)
    _selected: dict[str, list[Waiting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.skip if name not in self.registry]
        for name in unknown:
            self.registry.rule_class(name)
        for selection in self.pipeline.selections():
            self.select(selection)

    def rule(self, name: str) -> Rule:
        """The pass of a name, made once."""
        return self._pass(name).rule

    def _pass(self, name: str) -> Waiting:
        found = self._passes.get(name)
        if found is None:
            found = self._passes[name] = Waiting(self.registry.card(name), partial(self.registry.rule_class, name))
        return found

    def select(self, selection: Select) -> list[Waiting]:
        """The passes that a name or glob stands for."""
        found = self._selected.get(selection.text)
        if found is None:
            found = self._selected[selection.text] = self._select(selection)
        return found

    def _select(self, selection: Select) -> list[Waiting]:
        glob = selection.family
        if glob is None:
            return [] if selection.text in self.skip else [self._pass(selection.text)]
        family, name, level = glob
        cards = list(self.registry.cards())
        if family not in (*FAMILIES, CUSTOM) and not any(card.family == family for card in cards):
            raise UsageError(f"unknown pass family {family!r}; expected one of {', '.join((*FAMILIES, CUSTOM))}")
        return [
            self._pass(card.name)
            for card in cards
            if name in ("*", card.name) and card.name not in self.skip and self._fits(card, family, level)
        ]

    def _fits(self, card: Card, family: str, level: int) -> bool:
        belongs = card.family == family or (family == CUSTOM and card.family not in FAMILIES)
        return card.default and belongs and card.level == level and card.numerics <= self.numerics

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


def _together(passes: Sequence[Waiting], driver: Driver, *, again: bool) -> int:
    passes = list(dict.fromkeys(passes))
    single = [each for each in passes if not each.card.whole]
    start = perf_counter()
    count = driver.run_rules(single, once=again) if single else 0
    driver.log.of("worklist").seconds += perf_counter() - start
    for each in passes:
        if not each.card.whole:
            continue
        waits = each.card.late and again
        if waits and not count:
            count = int(driver.refresh_types())  # what is known now may be something for the others
        if not (waits and count):
            count += driver.run_pass(each)
    return count


def pipeline_of(passes: str | Iterable[str]) -> Pipeline:
    """A pipeline from text, or from names that run one after the other; of no names the one that does nothing.

    Raises:
        UsageError: the text is empty or malformed.
    """
    names = [passes] if isinstance(passes, str) else list(passes) if isinstance(passes, Iterable) else [passes]
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"passes: expected a pipeline or a list of pass names, found {type(name).__name__}")
    if not names:
        return Pipeline(())  # nothing to do, as onnxoptimizer has it
    text = ",".join(names)
    if not text.strip():
        raise UsageError("no passes given; expected a pipeline or a list of pass names")
    return Pipeline.parse(text)
