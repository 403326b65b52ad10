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

Measured at batch 1 on one thread of a Zen 4 core with AVX512 and onnxruntime 1.31.1, kernel times of the profiler. A
second machine, a shared Xeon with AVX512 whose memory is much slower than its arithmetic, was measured from session to
session while other work ran (`python -m graphopt_passes.algorithm.measure`):

    ====================  ================  =================
    channels, H = W       direct            F(4x4,3x3)
                          measured / model  measured / model
    ====================  ================  =================
    32 to 32, 56          0.41 / 0.34       0.63 / 0.73
    48 to 48, 56          0.83 / 0.77       1.18 / 1.23
    64 to 64, 56          1.37 / 1.36       1.81 / 1.83
    96 to 96, 28          0.75 / 0.77       0.71 / 1.20
    128 to 128, 28        1.32 / 1.36       2.16 / 1.94
    256 to 256, 14        1.38 / 1.36       8.46 / 3.79
    512 to 512, 7         2.07 / 2.31       15.2 / 10.7
    512 to 512, 14        13.4 / 9.25       15.4 / 14.4
    64 to 128, 112        19.8 / 18.5       29.4 / 30.1
    128 to 256, 56        17.4 / 18.5       17.1 / 19.4
    256 to 256, 56        35.6 / 37         29.9 / 31.1
    256 to 512, 28        18.1 / 18.5       15.6 / 12.8
    512 to 512, 28        35.3 / 37         29.0 / 30.4
    ====================  ================  =================

Its rates were fitted to the large layers. Of the others it misjudges 96 channels at 28x28, and those of 256 at 14x14
and 512 lose by more than it says; each is one noisy run.

The machine that a model is optimized for is not known to be either, so by default a layer must gain on both. Other
machines and larger batches are extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt_passes.algorithm.layer import Layer
from graphopt_passes.algorithm.transforms import TILES


@dataclass(frozen=True, slots=True)
class Rates:
    """A machine's speed, per millisecond.

    Attributes:
        direct: multiply-adds of the direct convolution, with its tensors in the cache and out of it.
        direct_cache: bytes of input, weights and result above which they are out of it.
        product: multiply-adds of the matrix products.
        elements: elements of inputs and results that the transforms pass over, in the cache and out of it.
        cache: bytes of transformed tiles above which they are out of it.
        weights: limits of their size in bytes, and bytes that are read up to each.
        overlaps: whether reading the weights and multiplying take place at the same time.
    """

    direct: tuple[float, float]
    direct_cache: float
    product: float
    elements: tuple[float, float]
    cache: float
    weights: tuple[tuple[float, float], ...]
    overlaps: bool


_ANY = float("inf")
RATES = {
    "zen4": Rates((58.5e6, 58.5e6), _ANY, 58.5e6, (417e3, 208e3), 7e6, ((24e6, 30e6), (_ANY, 10e6)), True),
    "xeon": Rates((85e6, 50e6), 4e6, 35e6, (417e3, 104e3), 7e6, ((1e6, _ANY), (_ANY, 4e6)), False),
}

SHORTEST = 1.0
"""Layers that take less milliseconds directly did not gain where they were measured inside of models."""

_START = 0.04
"""Milliseconds that the kernels take at least, all together."""

_MARGIN = 0.9
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


def direct(layer: Layer, rates: Rates) -> float:
    """Time of the direct convolution."""
    (height, width), (rows, columns), batch = layer.size, layer.source, layer.batch or 1
    moved = 4 * batch * (layer.inputs * rows * columns + layer.outputs * height * width) + layer.kernel.nbytes
    rate = rates.direct[0 if moved < rates.direct_cache else 1]
    return batch * height * width * layer.inputs * layer.outputs * 9 / rate


def winograd(layer: Layer, tile: int, rates: Rates) -> float:
    """Time by Winograd's algorithm with output tiles of `tile`, reorders around it included."""
    rows, columns = layer.tiles(tile)
    tiles = (layer.batch or 1) * rows * columns
    pairs, both = layer.inputs * layer.outputs, layer.inputs + layer.outputs
    product = (tile + 2) ** 2 * pairs * tiles / rates.product
    size = 4 * (tile + 2) ** 2 * pairs
    reading = size / next(rate for limit, rate in rates.weights if size <= limit)
    elements = tile * tile * tiles
    rate = rates.elements[0 if 4 * (tile + 2) ** 2 * tiles * both < rates.cache else 1]
    extra = elements * layer.outputs * _UNFUSED if layer.batch is None else 0.0
    multiplied = max(product, reading) if rates.overlaps else product + reading
    return multiplied + elements * both / rate + extra + _START


def growth(layer: Layer, tile: int) -> int:
    """Bytes that the weights and the bias, which is repeated for every tile, grow by."""
    rows, columns = layer.tiles(tile)
    tiles = (layer.batch or 1) * rows * columns
    copies = tiles if layer.batch is not None else tile * tile
    repeated = 4 * layer.outputs * copies if layer.bias is not None else 0
    kept = len(layer.weight.users) > 1
    return 4 * (tile + 2) ** 2 * layer.inputs * layer.outputs + repeated - (0 if kept else layer.kernel.nbytes)


def gains(layer: Layer, machines: Sequence[Rates]) -> list[Choice]:
    """The algorithms that are expected to be faster than the direct one on all machines, the fastest first."""
    found = []
    for tile in TILES:
        pairs = [(direct(layer, rates), winograd(layer, tile, rates)) for rates in machines]
        if all(base >= SHORTEST and time < _MARGIN * base for base, time in pairs):
            found.append(Choice(tile, min(base - time for base, time in pairs), growth(layer, tile)))
    return sorted(found, key=lambda choice: -choice.saved)
