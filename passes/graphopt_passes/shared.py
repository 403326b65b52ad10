"""Values that what a pass builds has in common, each made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.ir import Value

_Key = tuple[Any, ...]


class Shared:
    """Values by what they are; those that were made for something that was not built after all are forgotten."""

    def __init__(self) -> None:
        self._kept: dict[_Key, Value] = {}
        self._fresh: dict[_Key, Value] = {}

    def begin(self) -> None:
        """Begin to build something."""
        self._fresh = {}

    def keep(self) -> None:
        """Keep what was made for it."""
        self._kept |= self._fresh

    def once(self, key: _Key, make: Callable[[], Value]) -> Value:
        """A value as it was made before, while it is still there."""
        found = self._kept.get(key) or self._fresh.get(key)
        if found is None or (found.name and found.graph.values.get(found.name) is not found):
            found = self._fresh[key] = make()
        return found
