"""The order of the nodes of a graph: a linked list, with numbers that tell which of two nodes comes first."""

from __future__ import annotations

from graphopt.ir.graph import Graph, Node
from graphopt.ir.seal import write

_GAP = 1 << 30
"""Distance between the order numbers of neighbours, so that insertion seldom renumbers."""

_STEP = 1 << 15
"""How far behind its neighbour a new node is where there is room: as many then fit in front of one node, in a row."""


def append(graph: Graph, node: Node) -> None:
    """Put a node at the end of a graph that is being built, without noting a change."""
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
    """Put a node before `anchor` in the order of its graph, or at the end when that is None."""
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
    """The node before, among those still in the graph."""
    before = node.prev
    while before is not None and before.removed:
        before = before.prev
    return before


def next_node(node: Node) -> Node | None:
    """The node behind, among those still in the graph."""
    after = node.next
    while after is not None and after.removed:
        after = after.next
    return after


def renumber(graph: Graph) -> None:
    """Give the nodes evenly spaced order numbers."""
    for number, node in enumerate(graph):
        write(node, "order", number * _GAP)


def unlink(node: Node) -> None:
    """Take a node out of the order of its graph."""
    graph = node.graph
    _join(graph, previous_node(node), next_node(node))
    write(node, "removed", True)
    write(graph, "_count", graph._count - 1)
    if graph._listed is not None:
        write(graph, "_listed", None)
