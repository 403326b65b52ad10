"""Patterns with several roots: which of them must be looked for, and where the search starts."""

from __future__ import annotations

from collections.abc import Collection

from graphopt.match.tree import Const, NodePattern, Opt, OutputPattern, Slot, Tree, Var


def below(tree: Tree, root: NodePattern, absent: Collection[Opt] = ()) -> set[NodePattern]:
    """The node and everything that it computes from."""
    return set(Tree(tree.name, tree.where, (), (), root.outputs).nodes(absent))


def apart(tree: Tree, absent: Collection[Opt] = ()) -> list[NodePattern]:
    """The roots that no earlier root leads to; the first is the one that is dispatched."""
    found: list[NodePattern] = []
    seen: set[NodePattern] = set()
    for root in tree.roots():
        if root not in seen:
            found.append(root)
            seen |= below(tree, root, absent)
    return found


def anchor_path(
    root: NodePattern, known: Collection[Slot]
) -> tuple[Var | Const | OutputPattern, list[NodePattern]] | None:
    """The shortest way down from a further root to something that is known, a constant only if there is nothing else.

    Returns:
        What is known, and the nodes from its reader up to the root; None if the root stands alone.
    """
    last_resort = None
    waiting = [(root, [root])]
    seen = {root}
    for node, path in waiting:
        for slot in node.inputs:
            if slot in known and isinstance(slot, (Var, OutputPattern)):
                return slot, path
            if slot in known and isinstance(slot, Const):
                last_resort = last_resort or (slot, path)
            elif isinstance(slot, OutputPattern) and slot.node not in seen:
                seen.add(slot.node)
                waiting.append((slot.node, [slot.node, *path]))
    return last_resort
