"""Sealing: makes an object part of a model, so that it refuses changes while a pass runs (`graphopt.ir.seal`)."""

from __future__ import annotations

from graphopt.ir.graph import Graph, Node
from graphopt.ir.seal import Sealed, SealedDict, SealedList, write
from graphopt.ir.value import Value


class _SealedValue(Sealed, Value):
    __slots__ = ()


class _SealedNode(Sealed, Node):
    __slots__ = ()


class _SealedGraph(Sealed, Graph):
    __slots__ = ()


def seal_value(value: Value) -> None:
    """Seal a value that becomes part of a model: it refuses changes while a pass runs."""
    if type(value) is Value:
        value.users = SealedDict(value.users)
        write(value, "__class__", _SealedValue)


def seal_node(node: Node) -> None:
    """Seal a node with its outputs and subgraphs."""
    if type(node) is not Node:
        return
    node.inputs = SealedList(node.inputs)
    node.outputs = SealedList(node.outputs)
    if node._attrs is not None:
        node._attrs = SealedDict(node._attrs)
    for value in node.outputs:
        if value is not None:
            seal_value(value)
    if node.subgraphs:
        node.subgraphs = SealedDict(node.subgraphs)
        for graph in node.subgraphs.values():
            seal_graph(graph)
    write(node, "__class__", _SealedNode)


def seal_graph(graph: Graph) -> None:
    """Seal a graph with all its values and nodes."""
    if type(graph) is not Graph:
        return
    for value in graph.values.values():
        seal_value(value)
    for node in graph:
        seal_node(node)
    graph.inputs, graph.outputs = SealedList(graph.inputs), SealedList(graph.outputs)
    graph.values, graph.owners = SealedDict(graph.values), SealedDict(graph.owners)
    write(graph, "__class__", _SealedGraph)
