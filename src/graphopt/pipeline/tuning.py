"""Measurements of this machine for passes with a cost model.

A pass that can be tuned names its tuner in a class attribute, `tuner = "package.module:Class"`; the class is
instantiated without arguments and implements `Tuner`. `graphopt.system.tuned` stores its measurements, and the pass
reads them there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from graphopt.errors import PassError, UsageError
from graphopt.pipeline.registry import registry
from graphopt.system.machine import Target

Progress = Callable[[str, float], None]
"""Called with the name of the current measurement and the fraction of the work that is done, 0 to 1."""


class Tuner(Protocol):
    """Measures one machine for one pass."""

    def measure(self, target: Target, progress: Progress) -> dict[str, Any]:
        """Figures of this machine, in a form that JSON can hold; should take at most a few minutes.

        Raises:
            UsageError: the target cannot be measured here.
        """
        ...

    def rows(self, figures: dict[str, Any] | None, target: Target) -> list[tuple[str, ...]]:
        """A table of figures for display, titles first; None stands for the built-in figures."""
        ...


def tuners() -> dict[str, str]:
    """Passes that can be tuned, and the locations of their tuners."""
    places = {rule.name: getattr(rule, "tuner", None) for rule in registry().rules()}
    return {name: place for name, place in places.items() if isinstance(place, str) and place}


def tuner(name: str) -> Tuner:
    """The tuner of a pass.

    Raises:
        UsageError: no pass of that name can be tuned.
        PassError: the tuner cannot be loaded.
    """
    known = tuners()
    if name not in known:
        raise UsageError(f"{name!r} cannot be tuned; expected one of {', '.join(known)}")
    module, _, attribute = known[name].partition(":")
    try:
        made: Tuner = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise PassError(f"the tuner of {name!r} cannot be loaded from {known[name]}: {error}") from error
    return made
