"""Finds the one rewrite that makes a model compute something else, and the smallest model that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import onnx

from graphopt.audit.extraction import around, extract, typed, upstream
from graphopt.audit.feeds import symbols
from graphopt.audit.inspection import nodes
from graphopt.audit.settings import Manager, Settings
from graphopt.errors import GraphoptError, ModelError
from graphopt.ir import Model, Node, Source
from graphopt.showing import Shown
from graphopt.verify import Feed, Report, compare
from graphopt.verify.interface import interface_of, taken

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Progress = Callable[[str, float], None]
Judge = Callable[[onnx.ModelProto, onnx.ModelProto], Report]
"""Compares an original with a result."""

_STEPS = 4
"""How many steps around the replaced nodes a cut may reach; the next larger one has all nodes that they depend on."""


@dataclass(slots=True)
class Fault(Shown):
    """The step from which on a result differs.

    Attributes:
        tool: the tool that made the step.
        step: name of the pass.
        number: its position among all steps, from 1.
        of: the number of steps.
        event: graphopt's event in words; for other tools the changes of the step.
        report: the oracle's report on the model before and after this step alone.
        reproduction: the smallest model found that shows it; None if even the whole model does not (the step is only
            wrong together with others).
        nodes: number of nodes of the reproduction, in all graphs and functions.
        tests: the number of comparisons made.
        broken: whether the step gave no result; `report` is then only on the model before it.
    """

    tool: str
    step: str
    number: int
    of: int
    event: str
    report: Report
    reproduction: onnx.ModelProto | None = None
    nodes: int = 0
    tests: int = 0
    broken: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without the model."""
        data = asdict(replace(self, reproduction=None, report=Report("inconclusive", "", 0)))
        return {**data, "reproduction": None, "report": self.report.to_dict()}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts()

    def parts(self) -> Iterator[Any]:
        """The printed parts, line by line."""
        from rich.text import Text

        yield Text(str(self), style="bold red")
        if not self.broken:
            yield from (Text(f"  {line}") for line in self.report.summary().splitlines())
        if self.reproduction is None:
            yield Text("the step alone computes the same; it is only wrong together with later ones")

    def __str__(self) -> str:
        what = "gives no result" if self.broken else "makes the result differ"
        return f"{self.tool}: step {self.number} of {self.of} {what}: {self.event}"


@dataclass(slots=True)
class Oracle:
    """Judges results and counts the comparisons.

    Attributes:
        numerics: tolerance.
        seed: seed of the inputs.
        dims: sizes of symbolic dimensions.
        feed: the user's own inputs of the whole model.
        timeout: seconds for one comparison, which then runs in a separate process.
        tests: comparisons so far.
    """

    numerics: str = "rounding"
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    feed: Feed | None = None
    timeout: float | None = None
    tests: int = 0

    def __call__(self, original: onnx.ModelProto, result: onnx.ModelProto) -> Report:
        """The oracle's report; it only concerns numbers, not changes of the interface."""
        self.tests += 1
        # A part of the model may have other inputs than the whole, and only some of its dimensions.
        needed, known = {spec.name for spec in interface_of(original).inputs}, symbols(original)
        fits = self.feed is not None and needed <= self.feed.keys()
        return compare(
            original, result, numerics=self.numerics, seed=self.seed, inputs=self.feed if fits else None,
            dims={name: size for name, size in self.dims.items() if name in known}, timeout=self.timeout,
        )  # fmt: skip


def first_bad(count: int, bad: Callable[[int], bool]) -> int:
    """The smallest n from 1 to `count` with a bad result after n steps; `bad(count)` is known to hold."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if bad(middle):
            high = middle
        else:
            low = middle
    return high


def bisect(
    source: Source, manager: Manager | Settings | None = None, *, numerics: str = "rounding",
    seed: int = 0, dims: Mapping[str, int] | None = None, feed: Feed | None = None, timeout: float | None = None,
    progress: Progress = lambda what, part: None,
) -> Fault | None:  # fmt: skip
    """Find the rewrite of graphopt that makes a model's result differ.

    The run is replayed up to a number of rewrites, which is found by bisection. Runs are deterministic, so the first n
    rewrites are always the same.

    Args:
        source: the model.
        manager: the passes; level basic if None.
        numerics: how exact the results must be.
        seed: seed of the generated inputs.
        dims: sizes of symbolic dimensions.
        feed: the user's own inputs, on which the difference shows.
        timeout: seconds for each comparison; None for no limit.
        progress: callback that receives the progress.

    Returns:
        The fault, or None if the results agree.

    Raises:
        ModelError: the model cannot be read.
    """
    settings = manager if isinstance(manager, Settings) else Settings() if manager is None else Settings.of(manager)
    original = Model.load(source).flush()
    feed = None if feed is None else taken(original, feed)
    oracle = Oracle(numerics, seed, dict(dims or {}), feed, timeout)
    result, log = settings.run(original)
    count = len(log.events)
    if not count or not _differs(compared(oracle(original, result.flush()))):
        return None

    def bad(limit: int) -> bool:
        progress(f"replaying {limit} of {count} rewrites", 0.0)
        return _differs(oracle(original, settings.with_limit(limit).run(original)[0].flush()))

    number = first_bad(count, bad)
    before = settings.with_limit(number - 1).run(original)[0].flush()
    after, log = settings.with_limit(number).run(original)
    event = log.events[number - 1]
    fault = Fault("graphopt", event.rule, number, count, str(event), oracle(before, after.flush()))
    progress(f"cutting out {event.rule}", 0.5)
    alone = replace(settings.only(event.rule), limit=None)
    names = {name for note in (*event.removed, *event.changed) for name in note.outputs}
    found = reproduce(before, names, lambda model: alone.run(model)[0].flush(), oracle)
    if found is not None:
        fault.reproduction, fault.report = found
        fault.nodes = nodes_of(fault.reproduction)
    fault.tests = oracle.tests
    return fault


def nodes_of(model: onnx.ModelProto) -> int:
    """The number of nodes of a model, in all graphs and functions."""
    return sum(1 for _ in nodes(model))


def compared(report: Report) -> Report:
    """The report of a comparison, if it is conclusive.

    Raises:
        ModelError: it is inconclusive, since neither the runtime nor the reference can run the model.
    """
    if report.status == "inconclusive":
        raise ModelError(f"the result cannot be compared with the original: {report.summary()}")
    return report


def _differs(report: Report) -> bool:
    return report.status == "mismatch"


def reproduce(
    model: onnx.ModelProto, names: set[str], step: Callable[[onnx.ModelProto], onnx.ModelProto], judge: Judge
) -> tuple[onnx.ModelProto, Report] | None:
    """The smallest cut of a model around some values that a step miscompiles.

    Args:
        model: the model before the step.
        names: values computed at the place of the step.
        step: the optimization.
        judge: the oracle.

    Returns:
        The cut and the oracle's report on it; None if even the whole model shows no difference.
    """
    for candidate in _cuts(model, names):
        try:
            report = judge(candidate, step(candidate))
        except GraphoptError:
            continue  # the cut cannot be run, or the step rejects it
        if _differs(report):
            return candidate, report
    return None


def _cuts(model: onnx.ModelProto, names: set[str]) -> Iterator[onnx.ModelProto]:
    view = typed(Model.load(model))
    seeds = _nodes_of(view, names)
    seen: set[frozenset[Node]] = set()
    for selected in _selections(view, seeds):
        key = frozenset(selected)
        if not selected or key in seen or len(selected) == len(view.graph):
            continue
        seen.add(key)
        try:
            yield extract(view, selected)
        except ModelError:
            continue
    yield model


def _selections(view: Model, seeds: Sequence[Node]) -> Iterator[list[Node]]:
    yield list(seeds)
    for steps in range(1, _STEPS + 1):
        yield around(view.graph, seeds, steps)
    if seeds:
        yield upstream(max(seeds, key=lambda node: node.order))


def _nodes_of(view: Model, names: set[str]) -> list[Node]:
    found: dict[Node, None] = {}
    for node in view.nodes():
        if any(v is not None and v.name in names for v in node.outputs):
            top = node
            while top.graph.owner is not None:
                top = top.graph.owner
            if top.graph is view.graph:
                found[top] = None
    return sorted(found, key=lambda node: node.order)
