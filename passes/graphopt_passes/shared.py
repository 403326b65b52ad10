"""Values that what a pass builds has in common, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from graphopt.ir import Value
from graphopt.records import dataclass

_Key = tuple[Any, ...]


@dataclass(slots=True)
class Shared:
    """Values by what they are; those that were made for something that was not built after all are forgotten."""

    _kept: dict[_Key, Value] = field(default_factory=dict)
    _fresh: dict[_Key, Value] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin to build something."""
        self._fresh = {}

    def commit(self) -> None:
        """Keep what was made for it."""
        self._kept |= self._fresh

    def once(self, key: _Key, make: Callable[[], Value]) -> Value:
        """A value as it was made before, while it is still there."""
        found = self._kept.get(key) or self._fresh.get(key)
        if found is None or (found.name and found.graph.values.get(found.name) is not found):
            found = self._fresh[key] = make()
        return found
