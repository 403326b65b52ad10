"""Values that what a pass builds has in common, each made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from graphopt.rewrite import Rewriter, Value
from graphopt.rewrite.legality import gone


class Shared:
    """Values by what they are; those that were made for something that was not built after all are forgotten.

    Attributes:
        rw: the gate.
    """

    def __init__(self, rw: Rewriter) -> None:
        self.rw = rw
        self._kept: dict[Hashable, Value] = {}
        self._fresh: dict[Hashable, Value] = {}

    def begin(self) -> None:
        """Begin to build something."""
        self._fresh = {}

    def keep(self, made: Mapping[Value, Value] | None = None) -> None:
        """Keep what was made for it, and what was `made` of it; what nothing reads did not come into the graph."""
        self._fresh.update((made or {}).items())
        self._kept |= {key: value for key, value in self._fresh.items() if value.name}

    def kept(self, key: Hashable) -> Value | None:
        """A value as it was kept, while it is still there."""
        found = self._kept.get(key)
        return None if found is None or gone(found) else found

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """A value as it was made before, while it is still there."""
        found = self.kept(key) or self._fresh.get(key)
        if found is None:
            found = self._fresh[key] = make()
        return found
