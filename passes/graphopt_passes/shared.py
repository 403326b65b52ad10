"""Values that several rewrites of a pass share, each built once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from graphopt.rewrite import Rewriter, Value
from graphopt.rewrite.legality import gone


class Shared:
    """A cache of values by key; values built for a rewrite that is not completed are dropped.

    Attributes:
        rw: the gate.
    """

    def __init__(self, rw: Rewriter) -> None:
        self.rw = rw
        self._kept: dict[Hashable, Value] = {}
        self._fresh: dict[Hashable, Value] = {}

    def begin(self) -> None:
        """Begin a rewrite."""
        self._fresh = {}

    def keep(self, made: Mapping[Value, Value] | None = None) -> None:
        """Cache the values of this rewrite and the values in `made`; unread values did not enter the graph."""
        self._fresh.update((made or {}).items())
        self._kept |= {key: value for key, value in self._fresh.items() if value.name}

    def kept(self, key: Hashable) -> Value | None:
        """The cached value of a key, unless it was removed from the graph."""
        found = self._kept.get(key)
        return None if found is None or gone(found) else found

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, built by `make` if there is none yet, or it was removed."""
        found = self.kept(key) or self._fresh.get(key)
        if found is None:
            found = self._fresh[key] = make()
        return found
