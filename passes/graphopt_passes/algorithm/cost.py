"""What a 3x3 convolution costs directly and by Winograd's algorithm, in milliseconds on one thread.

Direct convolution multiplies and adds at the core's peak. Winograd's multiplies 4 times (F(4x4,3x3)) or 2.25 times
(F(2x2,3x3)) less at the same rate, or as fast as its weights, 4 or 1.8 times as large, come from memory, and passes
over inputs and outputs for the transforms, at half the speed once the tiles do not fit the cache. The table compares
what was measured with what this model says; the Winograd columns include a reorder from and to blocked layout.

    ====================  ================  =================  =================
    channels, H = W       direct            F(4x4,3x3)         F(2x2,3x3)
                          measured / model  measured / model   measured / model
    ====================  ================  =================  =================
    64 to 64, 56          1.97 / 1.98       1.43 / 1.50        1.88 / 1.88
    128 to 128, 28        1.94 / 1.98       1.12 / 1.02        1.46 / 1.40
    256 to 256, 14        1.90 / 1.98       1.00 / 1.00        1.47 / 1.16
    512 to 512, 7         1.96 / 1.98       4.10 / 3.97        1.50 / 1.34
    256 to 256, 56        31.7 / 31.6       16.3 / 15.6        21.7 / 21.8
    512 to 512, 28        31.6 / 31.6       15.5 / 11.8        19.7 / 18.0
    96 to 96, 28          1.10 / 1.11       0.73 / 0.68        0.94 / 0.90
    48 to 48, 56          1.10 / 1.11       0.97 / 1.04        1.24 / 1.26
    32 to 32, 56          0.50 / 0.49       0.59 / 0.65        0.73 / 0.74
    128 to 32, 28         0.50 / 0.49       0.49 / 0.46        0.55 / 0.56
    ====================  ================  =================  =================

Measured at batch 1 on one thread of a Zen 4 core with AVX512 and onnxruntime 1.31.1, kernel times of the profiler.
The rates below were fitted to that table, so other machines and larger batches are extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphopt_passes.algorithm.layer import Layer
from graphopt_passes.algorithm.transforms import TILES

_PEAK = 58.5e6
"""Multiply-adds a millisecond."""

_PASS = (2.4e-6, 4.8e-6)
"""Milliseconds of the transforms per element, with tiles in the cache and out of it."""

_CACHE = 7e6
"""Bytes of transformed tiles above which they are out of the cache."""

_WEIGHTS = ((24e6, 30e6), (float("inf"), 10e6))
"""Bytes a millisecond at which weights of up to a size are read."""

_START = 0.04
"""Milliseconds that the kernels take at least, all together."""

SHORTEST = 1.0
"""Layers that take less milliseconds directly did not gain where they were measured inside of models."""

_MARGIN = 0.85
"""The part of the direct time that Winograd's algorithm may take."""

_UNFUSED = 1.0e-6
"""Milliseconds per element of the result for bias and activation that are operators of their own."""


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


def direct(layer: Layer) -> float:
    """Time of the direct convolution."""
    height, width = layer.size
    return (layer.batch or 1) * height * width * layer.inputs * layer.outputs * 9 / _PEAK


def winograd(layer: Layer, tile: int) -> float:
    """Time by Winograd's algorithm with output tiles of `tile`, reorders around it included."""
    rows, columns = layer.tiles(tile)
    tiles = (layer.batch or 1) * rows * columns
    pairs, both = layer.inputs * layer.outputs, layer.inputs + layer.outputs
    product = (tile + 2) ** 2 * pairs * tiles / _PEAK
    size = 4 * (tile + 2) ** 2 * pairs
    rate = next(rate for limit, rate in _WEIGHTS if size <= limit)
    elements = tile * tile * tiles
    fits = 4 * (tile + 2) ** 2 * tiles * both < _CACHE
    extra = elements * layer.outputs * _UNFUSED if layer.batch is None else 0.0
    return max(product, size / rate) + elements * both * _PASS[0 if fits else 1] + extra + _START


def growth(layer: Layer, tile: int) -> int:
    """Bytes that the weights and the bias, which is repeated for every tile, grow by."""
    rows, columns = layer.tiles(tile)
    tiles = (layer.batch or 1) * rows * columns
    copies = tiles if layer.batch is not None else tile * tile
    repeated = 4 * layer.outputs * copies if layer.bias is not None else 0
    kept = len(layer.weight.users) > 1
    return 4 * (tile + 2) ** 2 * layer.inputs * layer.outputs + repeated - (0 if kept else layer.kernel.nbytes)


def gains(layer: Layer) -> list[Choice]:
    """The algorithms that are expected to be faster than the direct convolution, the fastest first."""
    base = direct(layer)
    if base < SHORTEST:
        return []
    found = [
        Choice(tile, base - winograd(layer, tile), growth(layer, tile))
        for tile in TILES
        if winograd(layer, tile) < _MARGIN * base
    ]
    return sorted(found, key=lambda choice: -choice.saved)
