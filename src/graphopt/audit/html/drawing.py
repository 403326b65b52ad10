"""Two graphs and the correspondence of their nodes, as data for the report's viewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphopt.analysis.types import infer_types
from graphopt.audit.columns import size
from graphopt.audit.html.contents import ModelContents
from graphopt.audit.profile.provenance import Provenance
from graphopt.audit.scopes import Scope, Scopes
from graphopt.ir import Model, Source
from graphopt.pipeline import registry
from graphopt.rewrite.events import NodeNote

if TYPE_CHECKING:
    from graphopt.audit.explaining import Step

MOST_NODES = 20_000
"""A larger drawing is unreadable, and the file would be too large."""


_OFTEN = {True: "not written", False: "more written"}


def alone(source: Source) -> dict[str, Any] | None:
    """One model as data for the viewer; None if it is too large to draw.

    Raises:
        ModelError: it cannot be read.
    """
    model = Model.load(source, opaque="missing")
    infer_types(model)
    return {"before": ModelContents(model).data()} if _drawable(model) else None


def side_by_side(before: Model, after: Model, steps: Sequence[Step]) -> dict[str, Any] | None:
    """Both models with positions, the original nodes of each node of the second one, and the places of rewrites.

    Args:
        before: the original, not changed.
        after: the optimized model, freshly loaded.
        steps: the rewrites.

    Returns:
        Data for the viewer; None if the graphs are too large to draw.
    """
    if not (_drawable(before) and _drawable(after)):
        return None
    left, right = ModelContents(before), ModelContents(after)
    origins, hidden = _origins(left, right, Provenance(before, after))
    survivors = {
        i for node, group in zip(right.drawn, origins, strict=True) if len(group) == 1
        for i in group if node is None or _op(left, i) == node.op
    }  # fmt: skip
    return {
        "before": left.data(),
        "after": right.data(),
        "origins": origins,
        "hidden": hidden,
        "unchanged": sorted(survivors),
        "events": _places(steps, left, right, Scopes(before, after)),
        "passes": _reasons(steps),
    }


def _drawable(model: Model) -> bool:
    return sum(1 for _ in model.nodes()) <= MOST_NODES


def _op(contents: ModelContents, number: int) -> str | None:
    node = contents.drawn[number]
    return node.op if node is not None else None


def _origins(left: ModelContents, right: ModelContents, provenance: Provenance) -> tuple[list[list[int]], list[int]]:
    """The original nodes of each node of the second model, by number, and the nodes that replace none."""
    ends, computed = left.ends(), left.outputs()
    origins: list[list[int]] = [[] for _ in right.drawn]
    hidden = []
    for end, number in right.ends().items():
        origins[number] = [ends[end]] if end in ends else []
    for node, number in right.numbers.items():
        if node.graph is provenance.after.graph:
            origins[number] = [left.numbers[each] for each in provenance.origins(node) if each in left.numbers]
            if provenance.hidden(node):
                hidden.append(number)
        else:  # in subgraphs and functions values are matched by name
            names = [(node.graph.scope, value.name) for value in node.outputs if value is not None]
            origins[number] = sorted({computed[name] for name in names if name in computed})
    return origins, hidden


def _places(steps: Sequence[Step], left: ModelContents, right: ModelContents, scopes: Scopes) -> list[dict[str, Any]]:
    """Rewrites with the numbers of their nodes, as far as these are in one of the two models."""
    before, after = left.outputs(), right.outputs()

    def numbers(step: Step, notes: Sequence[NodeNote], known: dict[tuple[Scope, str], int]) -> list[int]:
        places = scopes.of(step.event)
        found = ([known[place, name] for place in places if (place, name) in known] for name in _outputs(notes))
        return sorted({each[0] for each in found if each})

    return [
        {
            "rule": step.event.rule,
            "text": str(step.event).partition(": ")[2],
            "before": numbers(step, (*step.event.removed, *step.event.changed), before),
            "after": numbers(step, (*step.event.added, *step.event.changed), after),
            "gain": _gain(step),
        }
        for step in steps
    ]


def _outputs(notes: Sequence[NodeNote]) -> list[str]:
    return [name for note in notes for name in note.outputs]


def _gain(step: Step) -> str:
    """The gain of a rewrite, in words."""
    event = step.event
    fewer = len(event.removed) - len(event.added)
    parts = [f"{abs(fewer)} node{'s' if abs(fewer) > 1 else ''} {'fewer' if fewer > 0 else 'more'}"] if fewer else []
    if step.traffic:
        parts.append(f"{size(abs(step.traffic))} of results {_OFTEN[step.traffic > 0]}")
    if event.bytes:
        parts.append(f"{size(abs(event.bytes))} {'more' if event.bytes > 0 else 'less'} of constants")
    return ", ".join(parts) or "an equivalent form"


def _reasons(steps: Sequence[Step]) -> dict[str, str]:
    """The purpose of each pass: its summary."""
    known = registry()
    return {
        name: known.rule_class(name).summary() if name in known else ""
        for name in dict.fromkeys(step.event.rule for step in steps)
    }
