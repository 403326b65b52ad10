"""The settings of a run that passes read: the target machine, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any

from graphopt.errors import UsageError
from graphopt.records import dataclass
from graphopt.system.machine import Target


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that passes may read from `rw.options`; passes report through the log.

    Attributes:
        target: the machine to optimize for; None means the present one.
        max_folded_bytes: the largest constant that folding may store.
        max_growth: largest ratio of a large folded result to the constants that become unused.
        max_weight_growth: largest ratio of all weights to their original size when an algorithm trades memory for time.
        fold_qdq: fold quantize/dequantize pairs of constants too.
        inline_functions: inline model-local functions at level `basic`, too; higher levels always do.
        keep_opset: keep the model's standard opset at every level. It is kept if a specific one is requested.
        unroll_limit: the largest number of nodes that unrolling one Loop may create.
        unroll_runs: the number of runs of a session within which unrolling must repay the longer session start.
        extra: settings of third-party passes, by pass name.
    """

    target: Target | None = None
    max_folded_bytes: int = 1 << 28
    max_growth: float = 1.5
    max_weight_growth: float = 3.0
    fold_qdq: bool = False
    inline_functions: bool = False
    keep_opset: bool = False
    unroll_limit: int = 2000
    unroll_runs: int = 1000
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.extra, Mapping):
            raise UsageError(f"extra: expected a mapping from passes to settings, found {type(self.extra).__name__}")
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    def stated(self, name: str) -> Mapping[str, Any]:
        """The settings of a pass in `extra`; empty if there are none.

        Raises:
            UsageError: it is no mapping.
        """
        settings = self.extra.get(name, {})
        if not isinstance(settings, Mapping):
            raise UsageError(f"settings of {name} are {settings!r}: expected a mapping of their names to values")
        return settings

    def forces(self, name: str) -> bool:
        """Whether a pass is to ignore its cost model: its settings are `{"force": True}`."""
        return bool(self.stated(name).get("force"))

    def __reduce__(self) -> tuple[type[Options], tuple[Any, ...]]:
        """Pickling for child processes; a read-only mapping cannot be pickled."""
        values = (getattr(self, each.name) for each in fields(self))
        return Options, tuple(dict(value) if isinstance(value, Mapping) else value for value in values)
