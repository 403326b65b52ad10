"""Counts of the nodes made from each original node over all versions, so that every conversion ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphopt.errors import Decline
from graphopt.ir import Graph, Node
from graphopt.rewrite.inline import inner_graphs

MOST_NODES = 1 << 13
"""Most nodes that may be made from one original node."""

MOST_ROUNDS = 24
"""How often, at one version, expanded nodes may be expanded in turn."""


@dataclass(slots=True)
class Origin:
    """A node of the original model.

    Attributes:
        op: its operator.
        node: its name, or that of its first output.
        graph: the graph it was in.
        made: how many nodes were made from it so far.
    """

    op: str
    node: str
    graph: str
    made: int = 0

    @classmethod
    def of(cls, node: Node) -> Origin:
        """A node as an origin."""
        output = next((value.name for value in node.outputs if value is not None), "")
        return cls(node.op_type, node.name or output, node.graph.name)


class Descent:
    """The original node from which each node was made.

    Args:
        graphs: all graphs of the original model.
    """

    def __init__(self, graphs: Iterable[Graph]) -> None:
        self._known = {node for graph in graphs for node in graph}
        self._origins: dict[Node, Origin] = {}

    def origin(self, node: Node) -> Origin:
        """The origin of a node; for an original node the node itself."""
        return self._origins.get(node) or Origin.of(node)

    def enter(self, origin: Origin, touched: Iterable[Node]) -> None:
        """Record new nodes under their origin.

        Args:
            origin: the origin of the converted node.
            touched: nodes that may be new.

        Raises:
            Decline: too many nodes were made from the origin.
        """
        for new in touched:
            if new in self._known:
                continue
            inner = [each for graph in _bodies(new) for each in graph]
            for node in (new, *inner):
                self._known.add(node)
                self._origins[node] = origin
                origin.made += 1
        if origin.made > MOST_NODES:
            raise Decline("it would expand to more than {} nodes", MOST_NODES)


def _bodies(node: Node) -> Iterable[Graph]:
    """The subgraphs of a node, nested ones included."""
    for body in node.subgraphs.values():
        yield body
        yield from inner_graphs(body)
