"""In which order the two inputs of a commutative operator are tried, and what decides it.

Nothing is copied: a matcher looks at both inputs once, where it meets the operator, and takes the only order that can
fit. Where both can, it tries the order as written and then the other one (see `structure.py`).
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto

from graphopt.match.tree import Const, NodePattern, OutputPattern, Slot, Tree, Var, present
from graphopt.match.versions import is_commutative

MOST_UNDECIDED = 3
"""Operators of one pattern for which both orders may have to be tried: each doubles the worst case."""


class Order(Enum):
    """What is known of the order of two inputs when the pattern is compiled."""

    FIXED = auto()  # as written: not commutative, or swapping changes nothing
    BY_FIRST = auto()  # the first pattern fits at most one of the two inputs if the second is to fit the other
    BY_SECOND = auto()
    BOTH = auto()  # both orders may fit


def order_of(tree: Tree, node: NodePattern) -> Order:
    """How to find the order of a node's inputs."""
    if node.ordered or len(node.inputs) != 2 or not any(is_commutative(key) for key in node.ops):
        return Order.FIXED
    first, second = node.inputs
    if not (_is_value(first) and _is_value(second)) or first is second or _interchangeable(tree, first, second):
        return Order.FIXED
    if not _exclusive(first, second):
        return Order.BOTH
    return Order.BY_FIRST if isinstance(first, OutputPattern) else Order.BY_SECOND


def undecided(tree: Tree) -> list[NodePattern]:
    """The nodes for which both orders may have to be tried."""
    return [node for node in tree.nodes() if order_of(tree, node) is Order.BOTH]


def _is_value(slot: Slot) -> bool:
    return isinstance(slot, (Var, Const, OutputPattern))


def _exclusive(first: Slot, second: Slot) -> bool:
    """Whether no value can fit both."""
    if isinstance(first, OutputPattern) and isinstance(second, OutputPattern):
        return not set(first.node.ops) & set(second.node.ops)
    return {type(first), type(second)} == {OutputPattern, Const}


def _interchangeable(tree: Tree, first: Slot, second: Slot) -> bool:
    """Whether two leaves ask the same of their values and nothing else refers to them."""
    if not isinstance(first, (Var, Const)) or not isinstance(second, (Var, Const)) or type(first) is not type(second):
        return False
    uses = Counter(leaf for node in tree.nodes() for leaf in present(node))
    return uses[first] == uses[second] == 1 and first.constraints == second.constraints
