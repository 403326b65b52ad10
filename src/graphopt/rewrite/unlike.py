"""Branches of different shapes, of which a runtime must not learn before opset 11.

Until then both branches of an `If` have one shape. Exporters wrote others all the same, as for images without objects,
and runtimes load such a model as long as they do not infer both shapes. Passes make shapes plain, so what the shapes of
such branches follow from stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.ir import Model, Node, Value, captured_values
from graphopt.rewrite.legality import reads

_ANY_SHAPES = 11
"""The first opset in which the branches may have different shapes."""


def kept_nodes(model: Model) -> dict[Node, list[Node]]:
    """Every `If` whose branches are known to have different shapes, and the nodes from which these shapes follow.

    A constant condition does not count: the `If` is replaced with one branch.

    Returns:
        For each node, the `If` nodes for which it is kept, until their conditions are constant.
    """
    graphs = (graph for graph in model.graphs() if graph.owners and graph.opset() < _ANY_SHAPES)
    choices = [node for graph in graphs for node in graph.owners if node.op == "If" and not node.operand(0).is_const]
    found: dict[Node, list[Node]] = {}
    analysis = ShapeAnalysis(model) if choices else None
    for choice in choices:
        if analysis and any(_differ(one, other, analysis) for one, other in _results(choice)):
            for node in _decisive(choice):
                found.setdefault(node, []).append(choice)
    return found


def is_kept_for(choice: Node) -> bool:
    """Whether nodes are still kept for an `If` of unlike branches."""
    return not choice.removed and not choice.operand(0).is_const


def _decisive(choice: Node) -> set[Node]:
    """An `If`, and the nodes from which the shapes of its branches follow; no shape follows from its condition."""
    found, waiting = set[Node](), [choice]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            read = captured_values(node) if node is choice else reads(node)
            waiting += [value.producer for value in read if value.producer is not None]
            waiting += [inner for body in node.subgraphs.values() for inner in body]
    return found


def _results(node: Node) -> Iterator[tuple[Value, Value]]:
    """The results of both branches, in pairs."""
    yield from zip(*(body.outputs for body in node.subgraphs.values()), strict=False)


def _differ(one: Value, other: Value, analysis: ShapeAnalysis) -> bool:
    """Whether two values are known to have different shapes."""
    first, second = (analysis.to_dims(analysis.shape(value)) for value in (one, other))
    if first is None or second is None:
        return False
    pairs = zip(first, second, strict=False)
    return len(first) != len(second) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
