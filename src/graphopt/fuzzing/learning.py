"""What a session learns from its models, in the order of their numbers, and how many of them were different."""

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
"""Models that are learned from at once."""
_LAG = 16
"""A model depends on what blocks so far before its own showed: so those under way together depend on the same."""
_FILE = "distinct.json"


class Lessons:
    """Hands on what models showed, block by block, so that what is learned does not depend on who is done first.

    Args:
        first: the first number.
    """

    def __init__(self, first: int = 0) -> None:
        self.first, self.next, self.done = first, first, 0
        self._blocks: dict[int, dict[int, ModelShown]] = {}

    def ready(self, index: int) -> bool:
        """Whether it is a number's turn, and all is known that its model depends on."""
        last = self._last(index)
        return index == self.next and all(len(self._blocks.get(n, ())) == _BLOCK for n in range(self.done, last))

    def due(self, index: int) -> Iterator[list[ModelShown]]:
        """What is to be learned before the model of a number is drawn; then it is the turn of the next."""
        self.next = index + 1
        while self.done < self._last(index):
            block = self._blocks.pop(self.done, {})
            self.done += 1
            yield [block[number] for number in sorted(block)]

    def _last(self, index: int) -> int:
        return (index - self.first) // _BLOCK - _LAG

    def add(self, index: int, shown: ModelShown) -> None:
        """Take what a model showed."""
        self._blocks.setdefault((index - self.first) // _BLOCK, {})[index] = shown


@dataclass(slots=True)
class Distinct:
    """Which models and golden cases there were.

    Attributes:
        models: a number of each model, by its bytes.
        forms: by pass the forms of golden cases on which it fired: what differs in more than names and weights.
    """

    models: set[int] = field(default_factory=set)
    forms: dict[str, set[int]] = field(default_factory=dict)

    def add(self, told: dict[str, Any]) -> None:
        """Count what a worker told of one model."""
        if told.get("made"):
            self.models.add(told["model"])
        for name, shown in told.get("shown", {}).items():
            if FIRES in shown:
                self.forms.setdefault(FragmentName.read(name).case.partition("/")[0], set()).add(told["forms"][name])

    def counts(self) -> dict[str, int]:
        """How many forms each pass fired on."""
        return {rule: len(forms) for rule, forms in self.forms.items()}

    @classmethod
    def read(cls, folder: Path | None) -> Distinct:
        """What an earlier part of the session wrote."""
        if folder is None or not (folder / _FILE).is_file():
            return cls()
        told = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return cls(set(told["models"]), {rule: set(forms) for rule, forms in told["forms"].items()})

    def write(self, folder: Path) -> None:
        """Write it for a later part of the session."""
        forms = {rule: sorted(forms) for rule, forms in self.forms.items()}
        write_text(folder / _FILE, json.dumps({"models": sorted(self.models), "forms": forms}))
