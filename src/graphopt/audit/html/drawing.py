"""Two graphs and what became of the one in the other, as data for the report's viewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphopt.audit.difference import describe
from graphopt.audit.html.layout import positions
from graphopt.audit.profile.provenance import Provenance
from graphopt.ir import Model, Node, captured_values
from graphopt.rewrite import Event

MOST_NODES = 20_000
"""Beyond this a drawing helps nobody and the file would grow without end."""


def side_by_side(before: Model, after: Model, events: Sequence[Event]) -> dict[str, Any] | None:
    """Both graphs with positions, the nodes that each node of the second stands for, and the places of events.

    Args:
        before: the original, not changed.
        after: the optimized model, loaded anew.
        events: what was done.

    Returns:
        Data for the viewer, None when the graphs are too large to draw.
    """
    if max(len(before.graph), len(after.graph)) > MOST_NODES:
        return None
    left, right = _graph(before), _graph(after)
    numbers = {node: i for i, node in enumerate(_drawn(before))}
    provenance = Provenance(before, after)
    drawn = list(_drawn(after))
    origins = [[numbers[origin] for origin in provenance.origins(node) if origin in numbers] for node in drawn]
    survivors = {
        i for node, group in zip(drawn, origins, strict=True) if len(group) == 1
        for i in group if left["nodes"][i][2] == node.op
    }  # fmt: skip
    return {
        "before": left,
        "after": right,
        "origins": origins,
        "hidden": [i for i, node in enumerate(drawn) if provenance.hidden(node)],
        "unchanged": sorted(survivors),
        "events": _places(events, before, after, drawn, numbers),
    }


def _drawn(model: Model) -> list[Node]:
    return [node for node in model.graph if node.op != "Constant"]


def _graph(model: Model) -> dict[str, Any]:
    nodes = _drawn(model)
    numbers = {node: i for i, node in enumerate(nodes)}
    edges = []
    for node in nodes:
        for value in (*node.inputs, *captured_values(node)):
            producer = value.producer if value is not None else None
            if producer in numbers:
                edges.append((numbers[producer], numbers[node]))
    edges = list(dict.fromkeys(edges))
    places = positions(len(nodes), edges)
    return {
        "nodes": [
            [round(x), round(y), node.op, node.name, describe(node), _shape(node)]
            for node, (x, y) in zip(nodes, places, strict=True)
        ],
        "edges": edges,
    }


def _shape(node: Node) -> str:
    value = node.output(0)
    shape = value.shape if value is not None else None
    return "" if shape is None else "×".join("?" if d is None else str(d) for d in shape)


def _places(
    events: Sequence[Event], before: Model, after: Model, drawn: Sequence[Node], numbers: dict[Node, int]
) -> list[dict[str, Any]]:
    """Events with the numbers of the nodes that they concern, as far as those are in one of the two graphs."""
    left = {v.name: numbers[n] for n in before.graph if n in numbers for v in n.outputs if v is not None}
    right = {v.name: i for i, n in enumerate(drawn) for v in n.outputs if v is not None}
    found = []
    for event in events:
        gone = [name for note in (*event.removed, *event.changed) for name in note.outputs]
        made = [name for note in (*event.added, *event.changed) for name in note.outputs]
        found.append(
            {
                "rule": event.rule,
                "text": str(event).partition(": ")[2],
                "before": sorted({left[name] for name in gone if name in left}),
                "after": sorted({right[name] for name in made if name in right}),
                "bytes": event.bytes,
            }
        )
    return found
