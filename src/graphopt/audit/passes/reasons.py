"""Why graphopt leaves alone what some passes of peers change: recorded decisions, by peer and pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[tuple[str, str], str] = MappingProxyType({})
"""(peer, its pass) -> why graphopt's result is meant to differ; shown where a pass audit finds it `weaker`."""
