"""Which values a name can mean: functions have names of their own, bodies share those of what is around them."""

from __future__ import annotations

from graphopt.ir import Model
from graphopt.rewrite import Event

Scope = str
"""The name of a function, or "" for the main graph; each with all bodies in it."""


class Scopes:
    """The scopes in which rewrites took place: an event states the name of its graph, which bodies may share.

    Args:
        *models: the model at any times of the run.
    """

    def __init__(self, *models: Model) -> None:
        self._known: dict[str, dict[Scope, None]] = {}
        for model in models:
            for graph in model.graphs():
                self._known.setdefault(graph.name, {})[graph.scope] = None

    def of(self, event: Event) -> tuple[Scope, ...]:
        """Where it may have been, the main graph first."""
        return tuple(sorted(self._known.get(event.graph, ("",))))
