"""Names of nodes."""

from __future__ import annotations

from graphopt.rewrite import Graph, GraphPass, Rewriter


class SetUniqueNameForNodes(GraphPass):
    """Give every node a name that no other node of the model has.

    Nodes that have one keep it. Not part of any level; runs when it is named.
    """

    default = False
    peers = {"onnxoptimizer": "set_unique_name_for_nodes"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Name the nodes of one graph, knowing the names of all."""
        taken: dict[str, int] = {}
        for node in rw.model.nodes():
            taken[node.name] = taken.get(node.name, 0) + 1
        number = 0
        for node in graph:
            if node.name and taken[node.name] == 1:
                continue
            taken[node.name] -= 1
            name = ""
            while not name or name in taken:
                name = f"{node.name or node.op_type}_{number}"
                number += 1
            taken[name] = 1
            rw.rename_node(node, name)
