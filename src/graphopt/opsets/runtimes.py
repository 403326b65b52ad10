"""The opsets that other runtimes support: the contents of `runtimes.toml`, with sources."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from graphopt.errors import UsageError


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime, or a converter to one.

    Attributes:
        newest: the newest opset of the standard that it supports.
        oldest: the oldest.
        of: the runtime, converter or table that these opsets are taken from.
        source: the page that states this.
    """

    newest: int
    oldest: int
    of: str
    source: str

    def opset(self, present: int) -> int:
        """The opset to convert a model to: the present one if it is supported, else the nearest that is."""
        return min(max(present, self.oldest), self.newest)


@lru_cache(maxsize=1)
def runtimes() -> dict[str, Runtime]:
    """All known runtimes, by name."""
    text = (resources.files("graphopt.opsets") / "runtimes.toml").read_text(encoding="utf-8")
    return {name: Runtime(**facts) for name, facts in tomllib.loads(text).items()}


def runtime(name: str) -> Runtime:
    """A runtime by its name.

    Raises:
        UsageError: it is not known.
    """
    found = runtimes().get(name) if isinstance(name, str) else None
    if found is None:
        raise UsageError(f"unknown runtime {name!r}; expected one of {', '.join(runtimes())}")
    return found
