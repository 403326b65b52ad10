"""Calls of model-local functions, and what they come to when every call is written out."""

from __future__ import annotations

from graphopt.ir import Graph, Model, Node

ENDLESS = 1 << 62
"""The size of a function that calls itself."""


def called_function(node: Node) -> str:
    """The name of the function that a node calls, as `Graph.name` has it; "" when it calls none."""
    kind, _, name = node.op.rpartition("referring ")[2].partition(" ")
    return name.removesuffix(":") if kind == "call" else ""


class CallSizes:
    """How many nodes each function of a model comes to when all that it calls is written out."""

    def __init__(self, model: Model) -> None:
        self.functions = {function.name: function for function in model.functions}
        self._known: dict[Graph, int] = {}

    def of(self, graph: Graph) -> int:
        """The nodes of a graph, at most `ENDLESS`, which is also that of a function that calls itself."""
        size = self._known.get(graph)
        if size is None:
            self._known[graph] = ENDLESS
            size = self._known[graph] = min(self._count(graph), ENDLESS)
        return size

    def _count(self, graph: Graph) -> int:
        size = 0
        for node in graph:
            function = self.functions.get(called_function(node))
            size += 1 if function is None else self.of(function)
            size += sum(self._count(inner) for inner in node.subgraphs.values())
        return size
