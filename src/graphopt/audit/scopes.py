"""Scopes of value names: functions have their own, subgraphs share those of the enclosing graph."""

from __future__ import annotations

from graphopt.ir import Model
from graphopt.rewrite import Event

Scope = str
"""The name of a function, or "" for the main graph; each includes all its subgraphs."""


class Scopes:
    """The scopes of rewrites: an event states the name of its graph, which several subgraphs may share.

    Args:
        *models: the model at any stages of the run.
    """

    def __init__(self, *models: Model) -> None:
        self._known: dict[str, dict[Scope, None]] = {}
        for model in models:
            for graph in model.graphs():
                self._known.setdefault(graph.name, {})[graph.scope] = None

    def of(self, event: Event) -> tuple[Scope, ...]:
        """Its possible scopes, the main graph first."""
        return tuple(sorted(self._known.get(event.graph, ("",))))
