"""What comes of each node over all versions, counted: no conversion goes on without end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphopt.errors import Decline
from graphopt.ir import Graph, Node
from graphopt.rewrite.inline import inner_graphs

MOST_NODES = 1 << 13
"""Nodes that may come of one of the model."""

MOST_ROUNDS = 24
"""How often, at one version, what was written out may itself be written out."""


@dataclass(slots=True)
class Origin:
    """A node of the model as it came.

    Attributes:
        op: its operator.
        node: its name, or that of its first output.
        graph: the graph it was in.
        made: how many nodes came of it so far.
    """

    op: str
    node: str
    graph: str
    made: int = 0

    @classmethod
    def of(cls, node: Node) -> Origin:
        """The origin that a node is."""
        output = next((value.name for value in node.outputs if value is not None), "")
        return cls(node.op_type, node.name or output, node.graph.name)


class Descent:
    """Which node of a model each node came of.

    Args:
        graphs: all graphs of the model as it came.
    """

    def __init__(self, graphs: Iterable[Graph]) -> None:
        self._known = {node for graph in graphs for node in graph}
        self._origins: dict[Node, Origin] = {}

    def origin(self, node: Node) -> Origin:
        """What a node came of; itself where it was there from the start."""
        return self._origins.get(node) or Origin.of(node)

    def enter(self, origin: Origin, touched: Iterable[Node]) -> None:
        """Note what was made of a node.

        Args:
            origin: what the node came of.
            touched: nodes that may be new.

        Raises:
            Decline: too many came of it.
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
            raise Decline("more than {} nodes would come of it", MOST_NODES)


def _bodies(node: Node) -> Iterable[Graph]:
    """The bodies of a node, those inside of them included."""
    for body in node.subgraphs.values():
        yield body
        yield from inner_graphs(body)
