"""Copying the contents of an inner graph to where they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphopt.ir import Graph, Node, Value, edit
from graphopt.match import Mismatch

if TYPE_CHECKING:
    from graphopt.rewrite.rewriter import Rewriter


def adopt(rw: Rewriter, source: Graph, given: Mapping[Value, Value] | None = None) -> list[Value] | Mismatch:
    """Copy the nodes of a branch or body into the graph at hand, pending; its initializers become constants of it.

    Nodes and values get fresh names. Subgraphs are copied with them; what they captured from `source` they capture
    from the copies. Values from outside of `source` are read as before, and must be visible here.

    Args:
        rw: the gate, begun at a node of the graph to copy into.
        source: the inner graph.
        given: what stands for its inputs.

    Returns:
        What stands for the outputs of `source`, outer values included; a `Mismatch` when it cannot be copied.
    """
    for graph in (source, *_inner_graphs(source)):
        if any(value.is_sparse for value in graph.values.values()):
            return Mismatch("graph {} has a sparse initializer", graph.name)
        if any("[" in key for node in graph.owners for key in node.subgraphs):
            return Mismatch("graph {} has an operator with a list of graphs", graph.name)
    copier = _Copier(dict(given or {}))
    for value in source.initializers:
        if value not in copier.values and value.tensor is not None:
            copier.values[value] = rw.constant(value.tensor, like=value)
    for node in source:
        rw.add_pending(copier.node(node, rw.graph, named=False))
    return [copier.values.get(value, value) for value in source.outputs]


def _inner_graphs(graph: Graph) -> list[Graph]:
    inner = [subgraph for node in graph.owners for subgraph in node.subgraphs.values()]
    return [*inner, *(deeper for subgraph in inner for deeper in _inner_graphs(subgraph))]


@dataclass(slots=True)
class _Copier:
    """Copies that refer to each other.

    Attributes:
        values: the copy of each value; what is not in it is used as it is.
    """

    values: dict[Value, Value] = field(default_factory=dict)

    def node(self, node: Node, graph: Graph, *, named: bool) -> Node:
        """A copy of a node for `graph`, not linked into it."""
        copy = Node(node.op_type, node.domain, graph)
        copy.op, copy.overload = node.op, node.overload
        copy.origin = node.proto if node.proto is not None else node.origin
        copy._attrs = dict(node.attrs)
        copy.inputs = [None if value is None else self.values.get(value, value) for value in node.inputs]
        copy.outputs = [None if v is None else self._value(v, graph, v.name if named else "") for v in node.outputs]
        for index, value in enumerate(copy.outputs):
            if value is not None:
                value.producer, value.index = copy, index
        if named:
            copy.name = node.name
        if node.subgraphs:
            copy.subgraphs = {key: self._graph(inner, copy) for key, inner in node.subgraphs.items()}
        return copy

    def _value(self, value: Value, graph: Graph, name: str) -> Value:
        copy = self.values[value] = Value(name, graph)
        copy.type = value.type
        return copy

    def _graph(self, graph: Graph, owner: Node) -> Graph:
        """A copy of a subgraph; uses of outer values are counted when its owner is linked."""
        copy = Graph(graph.model, graph.name, graph.proto, graph.opsets, parent=owner.graph, owner=owner)
        copy.changed = True
        for value in (*graph.inputs, *graph.initializers):
            if value not in self.values:
                twin = copy.values[value.name] = self._value(value, copy, value.name)
                twin.info, twin.tensor, twin.is_input = value.info, value.tensor, value.is_input
        copy.inputs = [self.values[value] for value in graph.inputs]
        for node in graph:
            self._append(copy, self.node(node, copy, named=True))
        copy.outputs = [self.values.get(value, value) for value in graph.outputs]
        for before, after in zip(graph.outputs, copy.outputs, strict=True):
            if after.graph is copy:
                after.output_count += 1
                after.info = before.info
        return copy

    def _append(self, graph: Graph, node: Node) -> None:
        edit.append(graph, node)
        if node.subgraphs:
            graph.owners[node] = None
        for value in node.outputs:
            if value is not None:
                graph.values[value.name] = value
        for value in node.inputs:
            if value is not None and value.graph is graph:
                value.users[node] = value.users.get(node, 0) + 1
