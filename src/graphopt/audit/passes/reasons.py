"""Why graphopt deliberately does not do what some passes of peers do, by peer and pass."""

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
"""(peer, its pass) -> why graphopt's result deliberately differs; shown if a pass audit finds it `weaker`."""
