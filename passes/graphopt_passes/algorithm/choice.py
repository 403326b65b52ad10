"""What a cost model answers: the algorithms that pay for a layer, or why none does."""

from __future__ import annotations

from collections.abc import Sequence
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
    return 4 * (tile + 2) ** 2 * layer.inputs * layer.outputs + repeated - (0 if kept else layer.kernel.nbytes)


def slower(direct: float, others: Sequence[float]) -> Mismatch:
    """Why a layer stays direct."""
    reason = "direct convolution is expected to be faster: {:.2f} ms, F(4x4,3x3) {:.2f} ms, F(2x2,3x3) {:.2f} ms"
    return Mismatch(reason, direct, *others)
