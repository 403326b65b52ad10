"""What a cost model answers: the algorithms that pay for a layer, or why none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphopt.rewrite import Mismatch
from graphopt_passes.algorithm.blocked import BlockedLayer, Grid
from graphopt_passes.algorithm.layer import Layer


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm for one layer.

    Attributes:
        tile: m of F(m x m, 3 x 3).
        saved: milliseconds less than directly.
        growth: bytes that the constants of the layer grow by.
        tables: bytes of index tables, which layers of the same sizes share.
    """

    tile: int
    saved: float
    growth: int
    tables: int = 0


def growth(layer: Layer | BlockedLayer, tile: int) -> int:
    """Bytes that the weights grow by, and the bias: one for each coefficient of a tile, or in NCHW for each tile."""
    rows, columns = layer.tiles(tile)
    side = int(layer.kernel.shape[2]) + tile - 1
    copies = side * side
    if isinstance(layer, Layer):
        copies = layer.batch * rows * columns if layer.batch is not None else tile * tile
    repeated = 4 * layer.outputs * copies if layer.bias is not None else 0
    kept = len(layer.weight.users) > 1
    return 4 * side * side * layer.inputs * layer.outputs + repeated - (0 if kept else layer.kernel.nbytes)


def tables(layer: BlockedLayer, tile: int) -> int:
    """Bytes of the index tables of a layer, for its tiles, its image and what it adds."""
    grid, side = Grid(tile, *layer.tiles(tile), layer.batch or 1), layer.side + tile - 1
    height, width = layer.size
    inward = side * side * layer.inputs * grid.count
    image = grid.batch * layer.outputs * height * width
    added = tile * tile * layer.outputs * grid.count if layer.residual is not None else 0
    return 4 * (inward + image + added) // layer.block


def slower(direct: float, others: Mapping[int, float], kernel: int = 3) -> Mismatch:
    """Why a layer stays direct."""
    parts = [f"F({tile}x{tile},{kernel}x{kernel}) {time:.2f} ms" for tile, time in others.items()]
    return Mismatch("direct convolution is expected to be faster: {:.2f} ms, {}", direct, ", ".join(parts))
