"""What a cost model answers: the algorithms that pay for a layer, or why none does."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.errors import Decline
from graphopt.records import dataclass
from graphopt_passes.algorithm.transforms import Filtering


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm for one layer.

    Attributes:
        tile: m of F(m x m, r x r); 1 for a product with the taps as channels.
        saved: milliseconds less than directly.
        growth: bytes that the constants of the layer grow by.
        tables: bytes of index tables, which layers of the same sizes share.
    """

    tile: int
    saved: float
    growth: int
    tables: int = 0


def slower(direct: float, others: Mapping[int, float], kernel: tuple[int, int] = (3, 3)) -> Decline:
    """Why a layer stays direct."""
    parts = [f"{Filtering(tile, kernel)} {time:.2f} ms" for tile, time in others.items()]
    return Decline("direct convolution is expected to be faster: {:.2f} ms, {}", direct, ", ".join(parts))
