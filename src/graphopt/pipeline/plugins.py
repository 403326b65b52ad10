"""Entry points of a group in all installed distributions, if possible without `importlib.metadata`.

`importlib.metadata` imports an e-mail parser: a tenth of the time of a short command. Most environments have one
distribution with passes, graphopt itself, which is recognized by reading the entry point files directly. If there are
others, or a path entry that only `importlib.metadata` can read, that is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_FOLDERS = (".dist-info", ".egg-info")
_FILE = "entry_points.txt"


class OnlyEntry(NamedTuple):
    """The entry point of the only distribution that has one, with the part of `EntryPoint`'s interface that is used.

    Attributes:
        name: its name.
        module: the module that it names.
        attribute: the name of the object in the module.
        dist: not determined.
    """

    name: str
    module: str
    attribute: str
    dist: None = None

    def load(self) -> Any:
        """The object that it names."""
        return getattr(importlib.import_module(self.module), self.attribute)


def entry_points(group: str) -> Iterable[EntryPoint | OnlyEntry]:
    """The entry points of a group in all installed distributions."""
    only = _only_entry(group)
    if only is not None:
        return [only]
    from importlib import metadata

    return metadata.entry_points(group=group)


def _only_entry(group: str) -> OnlyEntry | None:
    """The entry point of a group, if it is certain that there is no other."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return None
    try:
        texts = [text for folder in dict.fromkeys(sys.path) for text in _texts(os.fspath(folder)) if group in text]
    except (OSError, ValueError, TypeError):
        return None  # for example an archive
    if len(texts) != 1:
        return None
    return _entry(texts[0], group)


def _texts(folder: str) -> Iterator[str]:
    """The entry point files of the distributions in a folder of the path.

    Raises:
        OSError: it is not a folder, or cannot be read.
        ValueError: a file is not text.
    """
    if folder.lower().endswith(".egg"):
        raise NotADirectoryError(folder)
    try:
        names = os.listdir(folder or ".")
    except FileNotFoundError:
        return
    for name in names:
        if name.lower().endswith(_FOLDERS):
            try:
                with open(os.path.join(folder, name, _FILE), encoding="utf-8") as file:
                    yield file.read()
            except (FileNotFoundError, NotADirectoryError):
                continue


def _entry(text: str, group: str) -> OnlyEntry | None:
    """The entry point of a group in a file that contains exactly one, in the plainest form; otherwise None."""
    _, header, rest = text.partition(f"[{group}]\n")
    lines = [line.strip() for line in rest.partition("\n[")[0].splitlines() if line.strip()]
    if not header or text.count(f"[{group}]") != 1 or len(lines) != 1:
        return None
    name, _, place = lines[0].replace(" ", "").partition("=")
    module, _, attribute = place.partition(":")
    plain = name.isidentifier() and attribute.isidentifier() and module.replace(".", "_").isidentifier()
    return OnlyEntry(name, module, attribute) if plain else None
