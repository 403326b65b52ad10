"""What a run tells its passes: the machine it optimizes for, and the limits it sets."""

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
    """Settings that passes may read from `rw.options`; what they have to tell goes into the log.

    Attributes:
        target: the machine that layout passes write for; None means the present one.
        max_folded_bytes: the largest constant that folding may make.
        max_growth: how many times the constants that it makes superfluous a folded result may take, if it is large.
        max_weight_growth: how many times its original size the sum of weights may take when an algorithm trades
            memory for time.
        fold_qdq: fold quantize/dequantize pairs of constants too.
        inline_functions: replace calls of model-local functions by their bodies at level `basic`, too; those above
            always do.
        keep_opset: leave the standard's opset of the model as it is at every level. It is kept where one is asked for.
        unroll_limit: the most nodes that unrolling one Loop may make.
        unroll_runs: in how many runs of a session it has to repay what the session takes longer to start.
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
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    def stated(self, name: str) -> Mapping[str, Any]:
        """What `extra` states for a pass that has its settings by name; none where it is not there.

        Raises:
            UsageError: it is no mapping.
        """
        settings = self.extra.get(name, {})
        if not isinstance(settings, Mapping):
            raise UsageError(f"settings of {name} are {settings!r}: expected a mapping of their names to values")
        return settings

    def forces(self, name: str) -> bool:
        """Whether a pass is to do what it can, whatever it costs: its settings are `{"force": True}`."""
        return bool(self.stated(name).get("force"))

    def __reduce__(self) -> tuple[type[Options], tuple[Any, ...]]:
        """For child processes; a mapping that nobody can change cannot be pickled."""
        values = (getattr(self, each.name) for each in fields(self))
        return Options, tuple(dict(value) if isinstance(value, Mapping) else value for value in values)
