"""The rewrites and non-rewrites of a run: events in order, near misses with reasons, the story of one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from graphopt.analysis.types import infer_types
from graphopt.audit.scopes import Scope, Scopes
from graphopt.audit.settings import Manager, Settings
from graphopt.errors import UsageError
from graphopt.ir import Model, Source, TensorType
from graphopt.pipeline import INLINE, Pipeline, Plan
from graphopt.rewrite import Event, Failure, Level, Log, NearMiss, OpRule, PatternRule
from graphopt.rewrite.events import NodeNote
from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_REORDERS = frozenset({"com.microsoft.nchwc::ReorderInput", "com.microsoft.nchwc::ReorderOutput"})


@dataclass(slots=True)
class Step:
    """One event, and its estimated gain.

    Attributes:
        event: the event.
        traffic: bytes of intermediate results that are no longer written (an estimate of the gain: most of these
            operators are memory-bound), with dynamic dimensions taken as 1; None if a rank is unknown.
    """

    event: Event
    traffic: int | None


@dataclass(slots=True)
class Gain:
    """The gain of one pass.

    Attributes:
        rule: the pass.
        hits: how often it fired.
        bytes: constants added minus dropped.
        traffic: bytes of intermediate results saved, as far as shapes are known.
        speedup: time without this pass / time with it, median; None if not measured.
        low: lower end of its interval.
        high: upper end of its interval.
    """

    rule: str
    hits: int
    bytes: int
    traffic: int
    speedup: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(slots=True)
class Explanation(Shown):
    """An explained run.

    Attributes:
        pipeline: the pipeline that ran.
        nodes: numbers of nodes before and after.
        steps: the events in order.
        near_misses: places of the result at which a pass matched partly and declined.
        moot: near misses during the run that do not hold at its end: the node was removed, or the reason vanished.
        failures: passes that raised and were undone.
        gains: gains by pass.
        looked: for each operator, the passes that look at it.
        before: the nodes of the original.
        after: the nodes of the result.
        places: the scopes of the nodes before and after.
        scopes: the scopes of the events.
    """

    pipeline: str
    nodes: tuple[int, int]
    steps: list[Step]
    near_misses: list[NearMiss]
    moot: list[NearMiss]
    failures: list[Failure]
    gains: list[Gain]
    looked: dict[str, list[str]]
    before: list[NodeNote] = field(default_factory=list)
    after: list[NodeNote] = field(default_factory=list)
    places: tuple[list[Scope], list[Scope]] = ([], [])
    scopes: Scopes = field(default_factory=Scopes)

    def story(self, name: str) -> Story:
        """The history of one node, found by its name or the name of one of its outputs.

        Raises:
            UsageError: there was no such node at any time.
        """
        return _tell(self, name)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema": 1,
            "pipeline": self.pipeline,
            "nodes": list(self.nodes),
            "steps": [{**asdict(step.event), "traffic": step.traffic} for step in self.steps],
            "near_misses": [asdict(miss) for miss in self.near_misses],
            "moot": [asdict(miss) for miss in self.moot],
            "failures": [{"pass": f.rule, "node": str(f.node), "error": str(f.error)} for f in self.failures],
            "gains": [asdict(gain) for gain in self.gains],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.storytelling import render_explanation

        yield from render_explanation(self)


@dataclass(slots=True)
class Story(Shown):
    """The history of one node.

    Attributes:
        name: the name that was asked for.
        start: the node in the original; None if a rewrite made it.
        events: the events of the node and of the nodes that replaced it, in order.
        end: the nodes of the result that replace it.
        near_misses: passes that declined there, with their reasons.
        silent: passes that look at such operators and did not match, for each operator at the end.
    """

    name: str
    start: NodeNote | None
    events: list[Event]
    end: list[NodeNote]
    near_misses: list[NearMiss]
    silent: dict[str, list[str]]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.storytelling import render_story

        yield from render_story(self)


def explain(source: Source, manager: Manager | Settings | None = None) -> Explanation:
    """Run passes over a model and explain what they rewrote, and where they declined and why.

    Args:
        source: the model.
        manager: the passes; level basic if None.

    Raises:
        ModelError: the model cannot be read.
    """
    return _explain(source, manager)[0]


def explain_with_graphs(
    source: Source, manager: Manager | Settings | None = None
) -> tuple[Explanation, dict[str, Any] | None]:
    """The explanation, and both graphs side by side for an HTML report (None if they are too large)."""
    from graphopt.audit.html.drawing import side_by_side

    found, model = _explain(source, manager)
    after = Model.load(model.flush(), opaque=model.opaque)
    before = Model.load(source, opaque=model.opaque)
    infer_types(before)
    infer_types(after)
    return found, side_by_side(before, after, found.steps)


def _explain(source: Source, manager: Manager | Settings | None) -> tuple[Explanation, Model]:
    settings = manager if isinstance(manager, Settings) else Settings() if manager is None else Settings.of(manager)
    plan = settings.plan()
    model = Model.load(source, opaque=settings.opaque)
    infer_types(model)
    sizes, scopes = _inside_calls(model, settings, plan) | _sizes(model), Scopes(model)
    before, places = _notes(model)
    model, log = settings.run(model, explain=True, plan=plan)
    infer_types(model)
    sizes.update(_sizes(model))
    after, left = _notes(model)
    steps = [Step(event, _traffic(event, sizes, scopes)) for event in log.events]
    # Reasons during the run may no longer hold at its end: those of a second run do.
    _, again = settings.run(Model.load(model.flush(), opaque=model.opaque), explain=True, plan=plan)
    # Passes that choose a layout decide once, so their reasons for the remaining nodes are kept.
    standing = {key: miss for key, miss in again.near_misses.items() if not _of_layout(miss, plan)}
    standing |= _decided(log, plan, after)
    declined = list(standing.values())
    moot = [m for key, m in log.near_misses.items() if key not in standing and not _fired_later(m, log.events, scopes)]
    looked: dict[str, list[str]] = {}
    for name in plan.names():
        rule = plan.rule(name)
        for op in rule.ops if isinstance(rule, (OpRule, PatternRule)) else ():
            looked.setdefault(op, []).append(name)
    found = Explanation(
        str(plan.pipeline), (len(before), len(after)), steps,
        declined, moot, log.failures, _gains(steps), looked, before, after, (places, left), scopes,
    )  # fmt: skip
    return found, model


def _notes(model: Model) -> tuple[list[NodeNote], list[Scope]]:
    nodes = list(model.nodes())
    return [NodeNote.of(node) for node in nodes], [node.graph.scope for node in nodes]


def _sizes(model: Model) -> dict[tuple[Scope, str], int]:
    """Bytes of computed values by scope and name, with dynamic dimensions taken as 1."""
    return {
        (graph.scope, value.name): size
        for graph in model.graphs()
        for value in graph.values.values()
        if value.tensor is None and isinstance(value.type, TensorType) and (size := value.type.least_nbytes) is not None
    }


def _inside_calls(model: Model, settings: Settings, plan: Plan) -> dict[tuple[Scope, str], int]:
    """Sizes of values in functions that are to be inlined: inside functions no types are inferred."""
    if not model.functions or INLINE not in plan.names():
        return {}
    copy = Model.load(model.flush(), opaque=model.opaque)
    inlined, _ = settings.run(copy, plan=Plan(Pipeline.parse(INLINE)))
    infer_types(inlined)
    return _sizes(inlined)


def _traffic(event: Event, sizes: dict[tuple[Scope, str], int], scopes: Scopes) -> int | None:
    if event.rule == INLINE:
        return 0  # a function wrote the same bytes
    removed = [name for note in event.removed if note.op != "Constant" for name in note.outputs if name]
    added = [name for note in event.added if note.op != "Constant" for name in note.outputs if name]
    for scope in scopes.of(event):
        if all((scope, name) in sizes for name in {*removed, *added}):
            return sum(sizes[scope, name] for name in removed) - sum(sizes[scope, name] for name in added)
    return None


def _of_layout(miss: NearMiss, plan: Plan) -> bool:
    return plan.rule(miss.rule).level is Level.LAYOUT


def _decided(log: Log, plan: Plan, after: list[NodeNote]) -> dict[tuple[str, str], NearMiss]:
    """Near misses of passes that choose a layout, for remaining nodes, some as part of a fused node."""
    left = {output: note for note in after for output in note.outputs if output}
    next_names: dict[str, list[str]] = {}
    for event in log.events:
        made = [output for note in event.added for output in note.outputs]
        for output in (output for note in event.removed for output in note.outputs):
            next_names.setdefault(output, []).extend(made)
    found: dict[tuple[str, str], NearMiss] = {}
    told: dict[tuple[str, str, NodeNote], tuple[str, str]] = {}
    for key, miss in log.near_misses.items():
        if not _of_layout(miss, plan):
            continue
        names = list(miss.node.outputs)
        for name in names:
            names += [made for made in next_names.get(name, ()) if made not in names]
        notes = [left[name] for name in names if name in left]
        note = next((n for n in notes if n.op in (miss.node.op, f"com.microsoft::Fused{miss.node.op}")), None)
        if note is not None:
            found.pop(told.get((miss.rule, miss.function, note), key), None)  # its form before it became a fused node
            told[miss.rule, miss.function, note] = key
            found[key] = replace(miss, node=note)
    return found


def _fired_later(miss: NearMiss, events: Iterable[Event], scopes: Scopes) -> bool:
    outputs = set(miss.node.outputs)
    return any(
        event.rule == miss.rule
        and outputs & {name for note in event.removed for name in note.outputs}
        and miss.function in scopes.of(event)
        for event in events
    )


def _gains(steps: list[Step]) -> list[Gain]:
    hits = Counter(step.event.rule for step in steps)
    return [
        Gain(
            rule,
            count,
            sum(step.event.bytes for step in steps if step.event.rule == rule),
            sum(step.traffic or 0 for step in steps if step.event.rule == rule),
        )
        for rule, count in hits.most_common()
    ]


def _tell(explanation: Explanation, name: str) -> Story:
    """The history of a node or value; it is not followed through reorders, unless it is about one."""
    story = _follow(explanation, name, hand_on=lambda note: note.op not in _REORDERS)
    if story.start is None and not story.events and not story.end and not story.near_misses:
        story = _follow(explanation, name, hand_on=lambda note: True)
    if story.start is None and not story.events and not story.end and not story.near_misses:
        raise UsageError(f"no node or value {name!r}, neither in the model nor created by a pass")
    return story


def _follow(explanation: Explanation, name: str, *, hand_on: Callable[[NodeNote], bool]) -> Story:
    known = zip(explanation.places[0], explanation.before, strict=True)
    scope, start = next(((place, note) for place, note in known if _is(note, name)), (None, None))
    watched = set(start.outputs) if start is not None else {name}
    names = {name}
    events = []
    for step in explanation.steps:
        event = step.event
        notes = (*event.removed, *event.changed, *event.added)
        if not any(_about(note, watched, names) and hand_on(note) for note in notes):
            continue
        if scope is not None and {scope, ""}.isdisjoint(explanation.scopes.of(event)):  # a value of another function
            continue
        events.append(event)
        watched |= {output for note in event.added if hand_on(note) for output in note.outputs if output}
    places = zip(explanation.places[1], explanation.after, strict=True)
    left = [note for place, note in places if scope is None or place in (scope, "")]
    end = [note for note in left if _about(note, watched, names)]
    said = (m for m in (*explanation.near_misses, *explanation.moot) if scope is None or m.function == scope)
    misses = [miss for miss in said if _about(miss.node, watched, names)]
    spoke = {miss.rule for miss in misses} | {event.rule for event in events}
    silent = {note.op: [r for r in explanation.looked.get(note.op, ()) if r not in spoke] for note in end}
    return Story(name, start, events, end, misses, silent)


def _is(note: NodeNote, name: str) -> bool:
    return note.name == name or name in note.outputs


def _about(note: NodeNote, watched: set[str], names: set[str]) -> bool:
    return bool(watched & set(note.outputs)) or (bool(note.name) and note.name in names)
