"""Invariants of the view, checked in tests and in debug mode after every rewrite."""

from __future__ import annotations

from collections import Counter

from graphopt.errors import EngineError
from graphopt.ir.graph import Graph, Node
from graphopt.ir.model import Model
from graphopt.ir.value import Value


def check(model: Model) -> None:
    """Check links, use counts, order and names of a whole model.

    Raises:
        EngineError: an invariant does not hold; the message names the first one, and where.
    """
    uses: Counter[tuple[int, int]] = Counter()
    outputs: Counter[int] = Counter()
    values: list[Value] = []
    for graph in model.graphs():
        _check_graph(graph)
        values.extend(graph.values.values())
        for node in graph:
            for value in node.inputs:
                if value is not None:
                    uses[id(value), id(node)] += 1
        for value in graph.outputs:
            outputs[id(value)] += 1
    known = {id(value) for value in values}
    for value in values:
        recorded = {(id(value), id(node)): count for node, count in value.users.items()}
        actual = {key: uses[key] for key in recorded}
        if recorded != actual:
            raise EngineError(f"uses of {value.name!r} are recorded wrongly")
        if value.output_count != outputs[id(value)]:
            raise EngineError(f"{value.name!r} counts {value.output_count} outputs, found {outputs[id(value)]}")
    if sum(uses.values()) != sum(sum(v.users.values()) for v in values):
        raise EngineError("a node reads a value that does not list it as a user")
    if not all(key in known for key, _ in uses):
        raise EngineError("a node reads a value that is in no graph")


def _check_graph(graph: Graph) -> None:
    count = 0
    previous: Node | None = None
    for node in graph:
        count += 1
        if previous is not None and previous.order >= node.order:
            raise EngineError(f"order numbers of {previous!r} and {node!r} are not ascending")
        if node.graph is not graph or node.removed:
            raise EngineError(f"{node!r} is listed in graph {graph.name!r} but not of it")
        for value in node.inputs:
            _check_visible(value, node)
        for index, value in enumerate(node.outputs):
            if value is not None and (value.producer is not node or value.index != index):
                raise EngineError(f"{value.name!r} does not name its producer {node!r}")
        previous = node
    if count != len(graph):
        raise EngineError(f"graph {graph.name!r} counts {len(graph)} nodes, found {count}")
    for name, value in graph.values.items():
        if value.name != name or value.graph is not graph:
            raise EngineError(f"value {value.name!r} is listed as {name!r} in graph {graph.name!r}")
        if value.producer is not None and value.producer.removed:
            raise EngineError(f"the producer of {name!r} is removed")


def _check_visible(value: Value | None, node: Node) -> None:
    if value is None:
        return
    if value.graph.values.get(value.name) is not value:
        raise EngineError(f"{node!r} reads {value.name!r}, which is in no graph")
    scope: Graph | None = node.graph
    at: Node | None = node
    while scope is not None and scope is not value.graph:
        at, scope = scope.owner, scope.parent
    if scope is None:
        raise EngineError(f"{node!r} reads {value.name!r}, which is not in its scope")
    if value.producer is not None and at is not None and value.producer.order >= at.order:
        raise EngineError(f"{node!r} reads {value.name!r} before it is computed")
