"""Golden cases to begin models with: those in which a pass fires, and those in which it declines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import onnx

from graphopt.fuzzing.drawing import Draw
from graphopt.pipeline import registry
from graphopt.system.machine import METADATA_KEY, runs_here
from graphopt.testing import cases_of

_FIRING = 0.75
_METADATA = re.compile(r"metadata_props: ?\[([^\]]*)\]")
_OPSET = re.compile(r'opset_import: ?\[[^\]]*"" ?: ?(\d+)')


@dataclass(frozen=True, slots=True)
class Seedling:
    """A golden case as the beginning of a model.

    Attributes:
        rule: the pass whose golden case it is.
        case: the name of the case.
        text: the model as ONNX text.
        fires: whether the pass fires on it.
        target: the target that it is written for.
        settings: the settings of its pass, as JSON.
    """

    rule: str
    case: str
    text: str
    fires: bool = True
    target: str = ""
    settings: str = ""

    @property
    def name(self) -> str:
        """The name of pass and case, as `pass/case`."""
        return f"{self.rule}/{self.case}"

    @property
    def context(self) -> tuple[str, str, str]:
        """The properties that cases in one model must share: the target, settings and metadata."""
        settings = f'{{"{self.rule}": {self.settings}}}' if self.settings else ""
        told = _METADATA.search(self.text)
        return self.target, settings, told[1] if told else ""

    @property
    def opset(self) -> int:
        """The standard opset; 0 if the model states none."""
        found = _OPSET.search(self.text)
        return int(found[1]) if found else 0

    def model(self) -> onnx.ModelProto:
        """The model."""
        return onnx.ModelProto.FromString(_parsed(self.text))


@lru_cache(maxsize=8192)
def _parsed(text: str) -> bytes:
    return onnx.parser.parse_model(text).SerializeToString()


Cases = dict[bool, dict[str, list[Seedling]]]
"""Cases in which a pass fires (True) or declines (False), by pass."""


class Nursery:
    """Seedlings by pass and opset. Passes are drawn evenly, however many cases they have.

    Args:
        seedlings: the seedlings to draw from.
    """

    def __init__(self, seedlings: Iterable[Seedling] = ()) -> None:
        self._all: Cases = {True: {}, False: {}}
        self._at: dict[int, Cases] = {}
        for each in seedlings:
            for cases in (self._all, self._at.setdefault(each.opset, {True: {}, False: {}})):
                cases[each.fires].setdefault(each.rule, []).append(each)

    def __bool__(self) -> bool:
        return bool(self._all[True])

    def draw(self, draw: Draw, opset: int = 0) -> Seedling | None:
        """A seedling, of the given opset if it is not 0; None if there is none."""
        cases = self._at.get(opset) if opset else self._all
        if cases is None:
            return None
        rules = cases[draw.chance(_FIRING)] or cases[True]
        return draw.one(rules[draw.one(list(rules))]) if rules else None


def golden(passes: tuple[str, ...] = ()) -> Iterator[Seedling]:
    """The golden cases of some passes, or of all.

    Raises:
        UsageError: there is no such pass.
    """
    known = registry()
    for name in passes or known.names():
        for case in cases_of(known.rule_class(name)):
            runs = "NOT RUN" not in case.head and (METADATA_KEY not in case.before or runs_here(case.model()))
            if runs and ("FIRES" in case.head or "KEEPS" in case.head):
                settings = case.head.get("SETTINGS", "")
                yield Seedling(name, case.path.stem, case.before, "FIRES" in case.head, case.target, settings)
