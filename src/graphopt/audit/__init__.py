"""Compares optimizers on a model, pass by pass and rewrite by rewrite; finds faults; measures where time goes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.audit.comparison import audit
    from graphopt.audit.record import Audit, Contents, Losses, Row
    from graphopt.audit.statistics import Spread
    from graphopt.system.processes import Limits

_PLACES = {
    "audit": "graphopt.audit.comparison", "Limits": "graphopt.system.processes", "Audit": "graphopt.audit.record",
    "Contents": "graphopt.audit.record", "Losses": "graphopt.audit.record", "Row": "graphopt.audit.record",
    "Spread": "graphopt.audit.statistics",
}  # fmt: skip

__all__ = ["Audit", "Contents", "Limits", "Losses", "Row", "Spread", "audit"]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'graphopt.audit' has no attribute {name!r}")
    return getattr(importlib.import_module(place), name)
