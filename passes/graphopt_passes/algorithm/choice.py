"""What a cost model answers: the algorithms that pay for a layer, or why none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from graphopt.rewrite import Mismatch
from graphopt_passes.algorithm.blocked import BlockedLayer, Grid
from graphopt_passes.algorithm.layer import Layer
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


def growth(layer: Layer | BlockedLayer, tile: int) -> int:
    """Bytes that the weights grow by, and the bias: one for each coefficient of a tile, or in NCHW for each tile."""
    rows, columns = layer.tiles(tile)
    area = copies = Filtering(tile, layer.sides).area
    if isinstance(layer, Layer):
        copies = layer.batch * rows * columns if layer.batch is not None else tile * tile
    repeated = 4 * layer.outputs * copies if layer.bias is not None and tile > 1 else 0
    kept = len(layer.weight.users) > 1
    return 4 * area * layer.inputs * layer.outputs + repeated - (0 if kept else layer.kernel.nbytes)


def tables(layer: BlockedLayer, tile: int) -> int:
    """Bytes of the index tables of a layer, for its tiles, its image and what it adds."""
    form = Filtering(tile, layer.sides)
    grid = Grid(form.outputs, *layer.tiles(tile), layer.batch or 1)
    height, width = layer.size
    inward = form.area * layer.inputs * grid.count
    image = grid.batch * layer.outputs * height * width if tile > 1 else 0
    added = prod(form.outputs) * layer.outputs * grid.count if layer.residual is not None and tile > 1 else 0
    return 4 * (inward + image + added) // layer.block


def slower(direct: float, others: Mapping[int, float], kernel: tuple[int, int] = (3, 3)) -> Mismatch:
    """Why a layer stays direct."""
    parts = [f"{Filtering(tile, kernel)} {time:.2f} ms" for tile, time in others.items()]
    return Mismatch("direct convolution is expected to be faster: {:.2f} ms, {}", direct, ", ".join(parts))
