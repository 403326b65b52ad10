"""Branches of different shapes, of which a runtime must not learn before opset 11.

Until then both branches of an `If` have one shape. Exporters wrote others all the same, as for images without objects,
and runtimes load such a model as long as they do not infer both shapes. Passes make shapes plain, so what the shapes of
such branches follow from stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.ir import Dim, Model, Node, TensorType, Value, captured_values
from graphopt.ir.types import shapes_differ
from graphopt.rewrite.legality import reads

_ANY_SHAPES = 11
"""The first opset in which the branches may have different shapes."""


def choices_of(nodes: Iterable[Node]) -> list[Node]:
    """The `If` nodes among nodes, and in their bodies, whose branches must have equal shapes.

    A constant condition does not count: the `If` is replaced with one branch.
    """
    found, waiting = [], [node for node in nodes if node.subgraphs and node.graph.opset() < _ANY_SHAPES]
    while waiting:
        node = waiting.pop()
        if node.op == "If" and not node.operand(0).is_const:
            found.append(node)
        waiting += [inner for body in node.subgraphs.values() for inner in body if inner.subgraphs]
    return found


def kept_nodes(model: Model, choices: Iterable[Node]) -> dict[Node, list[Node]]:
    """The `If` nodes whose branches are known to have different shapes, and the nodes from which these shapes follow.

    Args:
        model: the model.
        choices: the `If` nodes in question.

    Returns:
        For each node, the `If` nodes for which it is kept, until their conditions are constant.
    """
    found: dict[Node, list[Node]] = {}
    analysis = cache(lambda: ShapeAnalysis(model))  # of the whole model, so that it is made only where it is needed
    for choice in choices:
        if any(shapes_differ(_dims(one, analysis), _dims(other, analysis)) for one, other in _results(choice)):
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


def _dims(value: Value, analysis: Callable[[], ShapeAnalysis]) -> tuple[Dim, ...] | None:
    """The sizes of a value, those that only the analysis knows included."""
    known = value.type
    if isinstance(known, TensorType) and known.static:
        return known.shape
    return analysis().to_dims(analysis().shape(value))
