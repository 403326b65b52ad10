"""Producers of a node's inputs, by which almost every attempt at a rewrite is rejected in advance."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import TypeAlias

STORED = ""
"""The entry among operators for a value without producer that has contents: an initializer."""

CONSTANTS = frozenset({STORED, "Constant"})
"""The producers of constants."""

Ways: TypeAlias = tuple[tuple[frozenset[str], ...], ...]
"""For each alternative of a rule, groups of operators one of each of which must produce an input. No group: any."""


def may_fit(ways: Ways, makers: Set[str | None]) -> bool:
    """Whether a rule may match at a node whose inputs are produced by these operators."""
    for way in ways:
        for group in way:
            if makers.isdisjoint(group):
                break
        else:
            return True
    return not ways


def strictest(groups: Collection[frozenset[str]]) -> frozenset[frozenset[str]]:
    """Groups one of each of which is required, without supersets of other groups, which are implied."""
    return frozenset([group for group in groups if not any(other < group for other in groups)])
