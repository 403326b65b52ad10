"""The order of the nodes of a graph: a linked list, with ascending numbers for comparing two nodes."""

from __future__ import annotations

from graphopt.ir.graph import Graph, Node
from graphopt.ir.seal import write

_GAP = 1 << 30
"""Distance between the order numbers of neighbours, so that insertion seldom renumbers."""

_STEP = 1 << 15
"""Order distance of a new node from the node before it, if there is room: 2^15 insertions before a node then fit."""


def append(graph: Graph, node: Node) -> None:
    """Append a node to a graph under construction, without marking a change."""
    last = graph.last
    node.prev = last
    if last is None:
        graph.first = node
    else:
        last.next = node
        node.order = last.order + _GAP
    graph.last = node
    graph._count += 1
    graph._listed = None


def link(node: Node, anchor: Node | None) -> None:
    """Insert a node before `anchor` in the order of its graph, or at the end if that is None."""
    graph = node.graph
    before = graph.last if anchor is None else previous_node(anchor)
    _join(graph, before, node)
    _join(graph, node, anchor)
    write(graph, "_count", graph._count + 1)
    if graph._listed is not None:
        write(graph, "_listed", None)
    low = before.order if before is not None else (anchor.order if anchor is not None else 0) - 2 * _GAP
    high = anchor.order if anchor is not None else low + 2 * _GAP
    write(node, "order", low + min((high - low) // 2, _STEP))
    if node.order in (low, high):
        renumber(graph)


def _join(graph: Graph, before: Node | None, after: Node | None) -> None:
    """Make two nodes neighbours; None stands for an end of the graph."""
    if before is None:
        write(graph, "first", after)
    else:
        write(before, "next", after)
    if after is None:
        write(graph, "last", before)
    else:
        write(after, "prev", before)


def previous_node(node: Node) -> Node | None:
    """The preceding node, among those still in the graph."""
    before = node.prev
    while before is not None and before.removed:
        before = before.prev
    return before


def next_node(node: Node) -> Node | None:
    """The following node, among those still in the graph."""
    after = node.next
    while after is not None and after.removed:
        after = after.next
    return after


def renumber(graph: Graph) -> None:
    """Give the nodes evenly spaced order numbers."""
    for number, node in enumerate(graph):
        write(node, "order", number * _GAP)


def unlink(node: Node) -> None:
    """Remove a node from the order of its graph."""
    graph = node.graph
    _join(graph, previous_node(node), next_node(node))
    write(node, "removed", True)
    write(graph, "_count", graph._count - 1)
    if graph._listed is not None:
        write(graph, "_listed", None)
