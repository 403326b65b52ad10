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
second machine, a shared Xeon with AVX512, was measured from session to session in a quiet minute
(`python -m graphopt_passes.algorithm.measure`):

    ====================  ================  =================
    channels, H = W       direct            F(4x4,3x3)
                          measured / model  measured / model
    ====================  ================  =================
    48 to 48, 56          0.76 / 0.62       0.96 / 1.01
    64 to 64, 56          1.32 / 1.10       1.46 / 1.63
    96 to 96, 28          0.77 / 0.62       0.65 / 0.73
    128 to 128, 28        1.35 / 1.10       1.06 / 1.10
    256 to 256, 14        1.39 / 1.10       1.02 / 1.60
    512 to 512, 7         1.44 / 1.10       2.57 / 3.62
    512 to 512, 14        4.52 / 4.40       4.01 / 5.64
    64 to 128, 112        9.42 / 8.81       10.05 / 10.20
    128 to 256, 56        8.72 / 8.81       6.60 / 7.02
    256 to 256, 56        17.30 / 17.62     11.62 / 11.70
    256 to 512, 28        8.57 / 8.81       5.57 / 6.38
    512 to 512, 28        17.26 / 17.62     11.40 / 11.58
    ====================  ================  =================

There the model is kept from flattering Winograd's algorithm: the direct convolution has the rate of large layers, and
weights come from memory, as they do inside of a model but not where one layer is run again and again. ResNet-18 with
the first machine's choice took 1.4 times as long on the second. The machine that a model is optimized for is not known
to be either, so by default a layer must gain on both. Other machines and larger batches are extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.rewrite import Mismatch
from graphopt_passes.algorithm.choice import Choice, growth, slower
from graphopt_passes.algorithm.layer import Layer
from graphopt_passes.algorithm.transforms import TILES


@dataclass(frozen=True, slots=True)
class Rates:
    """A machine's speed, per millisecond.

    Attributes:
        direct: multiply-adds of the direct convolution.
        product: multiply-adds of the matrix products.
        elements: elements of inputs and results that the transforms pass over, in the cache and out of it.
        cache: bytes of transformed tiles above which they are out of it.
        weights: limits of their size in bytes, and bytes that are read up to each.
        overlaps: whether reading the weights and multiplying take place at the same time.
    """

    direct: float
    product: float
    elements: tuple[float, float]
    cache: float
    weights: tuple[tuple[float, float], ...]
    overlaps: bool


_ANY = float("inf")
RATES = {
    "zen4": Rates(58.5e6, 58.5e6, (417e3, 208e3), 7e6, ((24e6, 30e6), (_ANY, 10e6)), True),
    "xeon": Rates(105e6, 73e6, (417e3, 349e3), 3e6, ((_ANY, 13e6),), False),
}

SHORTEST = 1.0
"""Layers that take less milliseconds directly did not gain where they were measured inside of models."""

_START = 0.04
"""Milliseconds that the kernels take at least, all together."""

_MARGIN = 0.9
"""The part of the direct time that Winograd's algorithm may take."""

_UNFUSED = 1.0e-6
"""Milliseconds per element of the result for bias and activation that are operators of their own."""


def direct(layer: Layer, rates: Rates) -> float:
    """Time of the direct convolution."""
    height, width = layer.size
    return (layer.batch or 1) * height * width * layer.inputs * layer.outputs * 9 / rates.direct


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


def gains(layer: Layer, machines: Sequence[Rates]) -> list[Choice] | Mismatch:
    """The algorithms that are expected to be faster than the direct one on all machines, the fastest first."""
    found = []
    for tile in TILES:
        pairs = [(direct(layer, rates), winograd(layer, tile, rates)) for rates in machines]
        if all(base >= SHORTEST and time < _MARGIN * base for base, time in pairs):
            found.append(Choice(tile, min(base - time for base, time in pairs), growth(layer, tile)))
    return sorted(found, key=lambda choice: -choice.saved) or _reason(layer, machines)


def _reason(layer: Layer, machines: Sequence[Rates]) -> Mismatch:
    shortest = min(machines, key=lambda rates: direct(layer, rates))
    base = direct(layer, shortest)
    if base < SHORTEST:
        reason = "direct convolution is expected to be as fast: it takes about {:.2f} ms, less than {} ms"
        return Mismatch(reason, base, SHORTEST)
    slowest = max(machines, key=lambda r: min(winograd(layer, tile, r) for tile in TILES) / direct(layer, r))
    return slower(direct(layer, slowest), {tile: winograd(layer, tile, slowest) for tile in TILES})
