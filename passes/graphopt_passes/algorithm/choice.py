"""What a cost model answers: the algorithms that pay for a layer, or why none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphopt.rewrite import Mismatch
from graphopt_passes.algorithm.blocked import BlockedLayer
from graphopt_passes.algorithm.layer import Layer


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm for one layer.

    Attributes:
        tile: m of F(m x m, 3 x 3).
        saved: milliseconds less than directly.
        growth: bytes that the constants grow by.
    """

    tile: int
    saved: float
    growth: int


def growth(layer: Layer | BlockedLayer, tile: int) -> int:
    """Bytes that the weights and the bias, which is repeated for every tile, grow by."""
    rows, columns = layer.tiles(tile)
    tiles = (layer.batch or 1) * rows * columns
    copies = tile * (tiles + 1)
    if isinstance(layer, Layer):
        copies = tiles if layer.batch is not None else tile * tile
    repeated = 4 * layer.outputs * copies if layer.bias is not None else 0
    kept = len(layer.weight.users) > 1
    side = int(layer.kernel.shape[2]) + tile - 1
    return 4 * side * side * layer.inputs * layer.outputs + repeated - (0 if kept else layer.kernel.nbytes)


def slower(direct: float, others: Mapping[int, float], kernel: int = 3) -> Mismatch:
    """Why a layer stays direct."""
    parts = [f"F({tile}x{tile},{kernel}x{kernel}) {time:.2f} ms" for tile, time in others.items()]
    return Mismatch("direct convolution is expected to be faster: {:.2f} ms, {}", direct, ", ".join(parts))
