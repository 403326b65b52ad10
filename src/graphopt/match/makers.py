"""What computes the inputs of a node, by which almost every attempt at a rewrite is turned down before it is made."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import TypeAlias

STORED = ""
"""Stands, among operators, for what a value has that no node computes: contents of its own."""

CONSTANTS = frozenset({STORED, "Constant"})
"""What a constant comes from."""

Ways: TypeAlias = tuple[tuple[frozenset[str], ...], ...]
"""For each way in which a rule may fit a node, groups of makers: one of each group makes an input. None: anything."""


def may_fit(ways: Ways, makers: Set[str | None]) -> bool:
    """Whether a rule may find something at a node whose inputs come from these operators."""
    for way in ways:
        for group in way:
            if makers.isdisjoint(group):
                break
        else:
            return True
    return not ways


def strictest(groups: Collection[frozenset[str]]) -> frozenset[frozenset[str]]:
    """Groups of which there must be one of each, without those that another one is a part of: they say no more."""
    return frozenset([group for group in groups if not any(other < group for other in groups)])
