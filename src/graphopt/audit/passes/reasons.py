"""Why graphopt leaves alone what some passes of peers change: recorded decisions, by peer and pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SKIP_NORMALIZATION = (
    "on purpose: on CPU SkipLayerNormalization runs several times longer than Add and LayerNormalization, whose kernel "
    "is vectorized"
)

REASONS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("ort-all", "SkipLayerNormFusion"): _SKIP_NORMALIZATION,
        ("ort-all", "BiasSkipLayerNormFusion"): _SKIP_NORMALIZATION,
        ("ort-extended", "SkipLayerNormFusion"): _SKIP_NORMALIZATION,
        ("ort-extended", "BiasSkipLayerNormFusion"): _SKIP_NORMALIZATION,
    }
)
"""(peer, its pass) -> why graphopt's result is meant to differ; shown where a pass audit finds it `weaker`."""
