"""Every pass there is: those of the built-in library and those of installed third parties, by entry point."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from graphopt.errors import PassError, UsageError
from graphopt.rewrite import Rule

GROUP = "graphopt.passes"
"""The entry point group. Each entry names a function that returns `{pass name: "module:Class"}`."""


class Registry:
    """Pass names and where their classes are; a class is imported when it is first asked for.

    Args:
        catalogues: from the name of a distribution to its passes.

    Raises:
        PassError: two distributions register one name.
    """

    def __init__(self, catalogues: Mapping[str, Mapping[str, str]]) -> None:
        self._places: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._classes: dict[str, type[Rule]] = {}
        for owner, catalogue in catalogues.items():
            for name, place in catalogue.items():
                if name in self._places:
                    raise PassError(f"pass {name!r} is registered by both {self._owners[name]} and {owner}")
                self._places[name] = place
                self._owners[name] = owner

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def names(self) -> tuple[str, ...]:
        """All pass names, in the order of registration."""
        return tuple(self._places)

    def owner(self, name: str) -> str:
        """The distribution that a pass comes from."""
        self.rule_class(name)
        return self._owners[name]

    def rule_class(self, name: str) -> type[Rule]:
        """The class of a pass.

        Raises:
            UsageError: there is no pass of that name.
            PassError: its module cannot be imported, or what it names is no pass.
        """
        found = self._classes.get(name)
        if found is not None:
            return found
        place = self._places.get(name)
        if place is None:
            close = difflib.get_close_matches(name, self._places, 3)
            hint = f"; did you mean {' or '.join(close)}?" if close else "; `graphopt passes` lists all"
            raise UsageError(f"unknown pass {name!r}{hint}")
        module, _, attribute = place.partition(":")
        try:
            loaded = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise PassError(f"pass {name!r} of {self._owners[name]} cannot be loaded from {place}: {error}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, Rule)) or loaded.name != name:
            raise PassError(f"pass {name!r} of {self._owners[name]}: {place} is no pass of that name")
        self._classes[name] = loaded
        return loaded


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The passes of all installed distributions."""
    catalogues: dict[str, Mapping[str, str]] = {}
    for entry in sorted(entry_points(group=GROUP), key=_built_in_first):
        owner = entry.dist.name if entry.dist is not None else entry.name
        if owner in catalogues and catalogues[owner] == _catalogue(entry):
            continue  # one distribution seen through two folders of the path
        catalogues[owner] = _catalogue(entry)
    return Registry(catalogues)


def _built_in_first(entry: EntryPoint) -> tuple[bool, str]:
    return entry.name != "graphopt", entry.name


def _catalogue(entry: EntryPoint) -> Mapping[str, str]:
    try:
        catalogue = entry.load()()
    except Exception as error:
        raise PassError(f"entry point {entry.name!r} of group {GROUP} cannot be loaded: {error}") from error
    if not isinstance(catalogue, Mapping):
        raise PassError(f"entry point {entry.name!r} must give a mapping, found {type(catalogue).__name__}")
    return catalogue
