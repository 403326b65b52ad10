"""What a session learns from its models, in the order of their indices, and the number of distinct models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphopt.fuzzing.stock import FragmentName
from graphopt.fuzzing.targets import FIRES, ModelShown
from graphopt.system.files import write_text

_BLOCK = 32
"""Models per block; a session learns block by block."""
_LAG = 16
"""Lag in blocks: a model depends only on blocks at least this far before its own, so that concurrent models agree."""
_FILE = "distinct.json"


class Lessons:
    """Passes on what models showed, block by block, so that learning does not depend on which process is done first.

    Args:
        first: the first index.
    """

    def __init__(self, first: int = 0) -> None:
        self.first, self.next, self.done = first, first, 0
        self._blocks: dict[int, dict[int, ModelShown]] = {}

    def ready(self, index: int) -> bool:
        """Whether an index is next, and all results that its model depends on are known."""
        last = self._last(index)
        return index == self.next and all(len(self._blocks.get(n, ())) == _BLOCK for n in range(self.done, last))

    def due(self, index: int) -> Iterator[list[ModelShown]]:
        """The results to learn from before the model of an index is drawn; advances to the next index."""
        self.next = index + 1
        while self.done < self._last(index):
            block = self._blocks.pop(self.done, {})
            self.done += 1
            yield [block[number] for number in sorted(block)]

    def _last(self, index: int) -> int:
        return (index - self.first) // _BLOCK - _LAG

    def add(self, index: int, shown: ModelShown) -> None:
        """Record what a model showed."""
        self._blocks.setdefault((index - self.first) // _BLOCK, {})[index] = shown


@dataclass(slots=True)
class Distinct:
    """The distinct models and golden cases of a session.

    Attributes:
        models: a digest of each model.
        forms: for each pass, the forms of golden cases on which it fired; forms differ in more than names and weights.
    """

    models: set[int] = field(default_factory=set)
    forms: dict[str, set[int]] = field(default_factory=dict)

    def add(self, told: dict[str, Any]) -> None:
        """Count the record of a worker for one model."""
        if told.get("made"):
            self.models.add(told["model"])
        for name, shown in told.get("shown", {}).items():
            if FIRES in shown:
                self.forms.setdefault(FragmentName.read(name).case.partition("/")[0], set()).add(told["forms"][name])

    def counts(self) -> dict[str, int]:
        """The number of distinct forms on which each pass fired."""
        return {rule: len(forms) for rule, forms in self.forms.items()}

    @classmethod
    def read(cls, folder: Path | None) -> Distinct:
        """The record of an earlier part of the session."""
        if folder is None or not (folder / _FILE).is_file():
            return cls()
        told = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return cls(set(told["models"]), {rule: set(forms) for rule, forms in told["forms"].items()})

    def write(self, folder: Path) -> None:
        """Write the record for a later part of the session."""
        forms = {rule: sorted(forms) for rule, forms in self.forms.items()}
        write_text(folder / _FILE, json.dumps({"models": sorted(self.models), "forms": forms}))
