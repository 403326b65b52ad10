"""The speed of a machine in the figures that a cost model works with: built in, or as `graphopt tune` measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from math import inf
from typing import Any, Self

from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Rates of one machine; a subclass says which, each a number or a tuple of them."""

    def stated_by(self, kept: Mapping[str, Any] | None) -> Self | None:
        """The rates that figures of a machine hold; None where they hold none of this form."""
        return self.read(kept.get("rates", {})) if kept is not None else None

    def read(self, stated: Mapping[str, Any]) -> Self | None:
        """Rates of the same form, as JSON holds them; None where anything is missing, not positive or infinite."""
        values: dict[str, Any] = {}
        for field in fields(self):
            own, given = getattr(self, field.name), stated.get(field.name)
            parts = given if isinstance(given, list | tuple) else [given]
            count = len(own) if isinstance(own, tuple) else 1
            if len(parts) != count or not all(isinstance(part, int | float) and 0 < part < inf for part in parts):
                return None
            values[field.name] = tuple(parts) if isinstance(own, tuple) else given
        return replace(self, **values)

    def stated(self) -> dict[str, Any]:
        """These rates as JSON holds them."""
        return asdict(self)
