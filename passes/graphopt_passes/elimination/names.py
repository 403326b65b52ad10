"""Unique node names."""

from __future__ import annotations

from collections import Counter
from itertools import count

from graphopt.rewrite import Graph, GraphPass, Rewriter


class SetUniqueNameForNodes(GraphPass):
    """Give every node a name that no other node of the model has.

    Names that are unique already stay. The pass is not part of any level; it runs only if named.
    """

    default = False
    peers = {"onnxoptimizer": "set_unique_name_for_nodes"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        taken, numbers = Counter(node.name for node in rw.model.nodes()), count()
        for node in graph:
            if node.name and taken[node.name] == 1:
                continue
            taken[node.name] -= 1
            stem = node.name or node.op_type
            name = next(name for number in numbers if (name := f"{stem}_{number}") not in taken)
            taken[name] = 1
            with rw.attempt(node):
                rw.rename_node(node, name)
