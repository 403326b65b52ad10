"""Calls of model-local functions, and their sizes when every call is inlined."""

from __future__ import annotations

from graphopt.ir import Graph, Model, Node

ENDLESS = 1 << 62
"""The size of a recursive function."""


def called_function(node: Node) -> str:
    """The name of the function that a node calls, as in `Graph.name`; "" if it calls none."""
    kind, _, name = node.op.rpartition("referring ")[2].partition(" ")
    return name.removesuffix(":") if kind == "call" else ""


class CallSizes:
    """The number of nodes of each function of a model with all calls inlined."""

    def __init__(self, model: Model) -> None:
        self.functions = {function.name: function for function in model.functions}
        self._known: dict[Graph, int] = {}

    def of(self, graph: Graph) -> int:
        """The number of nodes of a graph, at most `ENDLESS`, which also stands for recursion."""
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
