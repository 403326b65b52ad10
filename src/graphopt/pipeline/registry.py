"""The registry of all passes: the built-in library and those of installed third parties, by entry point."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from graphopt.errors import PassError, PluginWarning, UsageError
from graphopt.pipeline.plugins import OnlyEntry, entry_points
from graphopt.rewrite import CUSTOM, FAMILIES, Level, Numerics, OpRule, PatternRule, Rule
from graphopt.rewrite.waiting import Card

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "graphopt.passes"
"""The entry point group. Each entry names a function that returns `{pass name: "module:Class"}`."""

INDEX = "index.json"
"""The file next to the module of an entry point with the cards of its passes; `graphopt passes --index` writes it."""

_BUILT_IN = "graphopt"
"""The entry point and the distribution of the built-in library."""

_LIBRARY = "graphopt_passes"
"""Its package."""

_STATED = {"family": str, "level": Level, "numerics": Numerics, "opsets": str, "default": bool, "peers": Mapping}
"""Class attributes that a pass declares, with their types."""

_ANYTHING = (Exception, SystemExit)
"""Exceptions that third-party code may raise."""

_WORD, _HINTS = 4, 5
"""The least letters of a part of a name that is searched for, and the most passes that a message names."""

_Read = TypeVar("_Read")


class Registry:
    """Pass names and the locations of their classes; a class is imported on first use.

    If two distributions have a pass of the same name, that of the first is kept.

    Args:
        catalogues: from the name of a distribution to its passes.
        indexes: from the name of a distribution to the cards of its passes, known without importing them.
    """

    def __init__(
        self, catalogues: Mapping[str, Mapping[str, str]], indexes: Mapping[str, Mapping[str, Card]] | None = None
    ) -> None:
        self._places: dict[str, str] = {}
        self._cards: dict[str, Card] = {}
        self._owners: dict[str, str] = {}
        self._classes: dict[str, type[Rule]] = {}
        self._left_out: set[str] = set()
        self._by_family: dict[str, dict[int, list[Card]]] | None = None
        for owner, catalogue in catalogues.items():
            index = (indexes or {}).get(owner, {})
            for name, place in catalogue.items():
                if name in self._places:
                    _report(f"pass {name!r} of {owner} is left out: {self._owners[name]} has one of that name")
                else:
                    self._places[name] = place
                    self._owners[name] = owner
                    if name in index:
                        self._cards[name] = index[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def names(self) -> tuple[str, ...]:
        """All pass names, in the order of registration."""
        return tuple(self._places)

    def owner(self, name: str) -> str:
        """The distribution that a pass comes from."""
        self.rule_class(name)
        return self._owners[name]

    def rules(self) -> Iterator[type[Rule]]:
        """All passes, in the order of registration; one that cannot be loaded is reported once and left out."""
        return self._each(self.rule_class)

    def cards(self) -> Iterator[Card]:
        """The cards of all passes; a pass without one in an index is imported, and left out as in `rules`."""
        return self._each(self.card)

    def by_family(self) -> Mapping[str, Mapping[int, Sequence[Card]]]:
        """The cards of all passes, by family and level; those of third-party families are also listed as custom."""
        if self._by_family is None:
            found: dict[str, dict[int, list[Card]]] = {}
            for card in self.cards():
                for family in {card.family, card.family if card.family in FAMILIES else CUSTOM}:
                    found.setdefault(family, {}).setdefault(card.level, []).append(card)
            self._by_family = found
        return self._by_family

    def _each(self, read: Callable[[str], _Read]) -> Iterator[_Read]:
        for name in self._places:
            if name not in self._left_out:
                try:
                    yield read(name)
                except PassError as error:
                    self._left_out.add(name)
                    _report(f"{error}; it is left out")

    def card(self, name: str) -> Card:
        """The card of a pass; the pass is imported if no index has its card, and errors are those of `rule_class`."""
        found = self._cards.get(name)
        if found is None:
            found = self._cards[name] = Card.of(self.rule_class(name))
        return found

    def rule_class(self, name: str) -> type[Rule]:
        """The class of a pass.

        Raises:
            UsageError: there is no pass of that name.
            PassError: its module cannot be imported, or the named object is not a pass, lacks a method, declares an
                attribute of the wrong type, or cannot be instantiated.
        """
        found = self._classes.get(name)
        if found is not None:
            return found
        place = self._places.get(name)
        if place is None:
            raise UsageError(f"unknown pass {name!r}{self._hint(name)}")
        who = f"pass {name!r} of {self._owners[name]}"
        module, _, attribute = place.partition(":")
        try:
            loaded = getattr(importlib.import_module(module), attribute)
        except _ANYTHING as error:
            raise PassError(f"{who} cannot be loaded from {place}: {_said(error)}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, Rule)) or getattr(loaded, "name", "") != name:
            raise PassError(f"{who}: {place} is not a pass of that name")
        missing = sorted(getattr(loaded, "__abstractmethods__", ()))
        if missing:
            raise PassError(f"{who}: {place} lacks {', '.join(missing)}")
        for stated, kind in _STATED.items():
            if not isinstance(getattr(loaded, stated), kind):
                raise PassError(f"{who}: {stated} is {getattr(loaded, stated)!r}, expected a {kind.__name__}")
        if self._owners[name] != _BUILT_IN:  # instantiating all built-in passes would take too long here
            _try(loaded, who)
        self._classes[name] = loaded
        return loaded

    def _hint(self, name: str) -> str:
        """Passes that may have been meant: those with the word in their names, or the most similar name."""
        import difflib

        having = [each for each in self._places if name in each] if len(name) >= _WORD else []
        close = having[:_HINTS] or difflib.get_close_matches(name, self._places, 1)
        more = ", ..." if len(having) > _HINTS else ""
        return f"; did you mean {' or '.join(close)}{more}?" if close else "; `graphopt passes` lists all"


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The passes of all installed distributions; third-party passes that cannot be loaded are reported and left out.

    Raises:
        PassError: the built-in library is not installed, or cannot be loaded.
    """
    catalogues: dict[str, dict[str, str]] = {}
    indexes: dict[str, dict[str, Card]] = {}
    entries = sorted(entry_points(GROUP), key=_built_in_first)
    if _BUILT_IN not in [entry.name for entry in entries]:
        # With a bare source tree on the path every level would be empty, and no run would do anything.
        raise PassError("graphopt's own passes are not registered; install it, with `pip install -e .` in its sources")
    for entry in entries:
        owner = entry.name
        if entry.dist is not None and entry.module != _LIBRARY:  # the name requires parsing all of its metadata
            owner = entry.dist.name
        try:
            # A distribution may have several entries, and be seen through two folders of the path.
            catalogue, index = _catalogue(entry), _index(entry)
            catalogues.setdefault(owner, {}).update(catalogue)
            indexes.setdefault(owner, {}).update(index)
        except PassError as error:
            if entry.name == _BUILT_IN:
                raise
            _report(f"the passes of {owner} are left out: {error}")
    return Registry(catalogues, indexes)


def index_of(package: str) -> tuple[Path, str]:
    """The path of a package's index, and its correct contents, a line for each pass.

    Args:
        package: the importable name of a package that registers passes.

    Raises:
        UsageError: no pass comes from a package of that name.
    """
    rules = [rule for rule in registry().rules() if rule.__module__.partition(".")[0] == package]
    if not rules:
        raise UsageError(f"no pass comes from package {package!r}")
    records = sorted((rule.name, Card.complete(rule).record()) for rule in rules)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(record)}" for name, record in records)
    return Path(str(sys.modules[package].__file__)).with_name(INDEX), f"{{\n{lines}\n}}\n"


def _try(rule: type[Rule], who: str) -> None:
    try:
        made = rule()
        made.knows_opset(1)
        if isinstance(made, (OpRule, PatternRule)):
            _ = made.ops  # builds the pattern of a `PatternRule`
    except _ANYTHING as error:
        raise PassError(f"{who} cannot be made: {_said(error)}") from error


def _built_in_first(entry: EntryPoint | OnlyEntry) -> tuple[bool, str]:
    return entry.name != _BUILT_IN, entry.name


def _catalogue(entry: EntryPoint | OnlyEntry) -> Mapping[str, str]:
    try:
        catalogue = entry.load()()
    except _ANYTHING as error:
        raise PassError(f"entry point {entry.name!r} of group {GROUP} cannot be loaded: {_said(error)}") from error
    texts = [*catalogue.keys(), *catalogue.values()] if isinstance(catalogue, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise PassError(f"entry point {entry.name!r} must give pass names with their places, found {catalogue!r:.100}")
    return dict(catalogue)


def _index(entry: EntryPoint | OnlyEntry) -> dict[str, Card]:
    """The cards in the index next to the module of an entry point; empty if there is no index."""
    file = Path(getattr(sys.modules.get(entry.module), "__file__", None) or entry.module).with_name(INDEX)
    try:
        return {name: Card.from_record(name, record) for name, record in json.loads(file.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PassError(f"{file} is malformed: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """An exception of third-party code, in a line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _report(message: str) -> None:
    warnings.warn(" ".join(message.split()), PluginWarning, stacklevel=3)
