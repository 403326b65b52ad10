"""The plan as a table: what becomes of each node, and what the cost model says."""

from __future__ import annotations

from graphopt.ir import Graph, Node
from graphopt_passes.layout.plan import LayoutPlan


def rows(graph: Graph, plan: LayoutPlan) -> list[tuple[str, ...]]:
    """A row for each node that was looked at, in the order of the graph.

    Its first output, its operator, what becomes of it, and microseconds in NCHW and in blocks: estimates, without
    reorders, empty where the node cannot be blocked.

    Args:
        graph: the graph, unchanged yet.
        plan: what is to become of it.
    """
    groups = {group.form.node: group for group in plan.groups.values()}
    found = []
    for node in graph:
        name = next((value.name for value in node.results), "")
        cells = tuple(f"{price:.1f}" for price in plan.prices[node]) if node in plan.prices else ("", "")
        group = groups.get(node)
        if group is not None:
            found.append((name, node.op, f"blocked: {group.form.title}", *cells))
        elif node in plan.prices:
            found.append((name, node.op, _rest(node, plan), *cells))
        elif node in plan.declined:
            found.append((name, node.op, f"NCHW: {plan.declined[node]}", *cells))
    return found


def _rest(node: Node, plan: LayoutPlan) -> str:
    return "NCHW: cheaper with what is around it" if node in plan.kept else "blocked: by the kernel before it"
