"""Cost model of 3x3 convolutions in NCHW, direct and by Winograd's algorithm, in milliseconds on one thread.

Winograd's algorithm takes 4 times (F(4x4,3x3)) or 2.25 times (F(2x2,3x3)) fewer multiplications, unless it is bound by
reading its weights, 4 or 1.8 times as large, from memory; its transforms are passes over inputs and outputs.
docs/winograd.md compares the model with measurements on two machines; by default a layer must gain on both.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import Decline
from graphopt.records import dataclass
from graphopt_passes.algorithm.layer import Choice, PlainLayer, slower
from graphopt_passes.algorithm.transforms import TILES


@dataclass(frozen=True, slots=True)
class PlainRates:
    """A machine's speed, per millisecond.

    Attributes:
        direct: multiply-adds of the direct convolution.
        product: multiply-adds of the matrix products.
        elements: elements of inputs and results that the transforms process, within the cache and beyond it.
        cache: bytes of transformed tiles that the cache holds.
        weights: upper limits of the weights' size in bytes, each with the bytes read per millisecond.
        overlaps: whether reading the weights overlaps with multiplying.
    """

    direct: float
    product: float
    elements: tuple[float, float]
    cache: float
    weights: tuple[tuple[float, float], ...]
    overlaps: bool


_ANY = float("inf")
RATES = {
    "zen4": PlainRates(58.5e6, 58.5e6, (417e3, 208e3), 7e6, ((24e6, 30e6), (_ANY, 10e6)), True),
    "xeon": PlainRates(105e6, 73e6, (417e3, 349e3), 3e6, ((_ANY, 13e6),), False),
}

SHORTEST = 1.0
"""Milliseconds of the direct convolution below which layers did not gain when measured in models."""

_START = 0.04
"""Least milliseconds of all kernels together."""

_MARGIN = 0.9
"""The largest predicted ratio of Winograd's time to the direct time at which a layer is converted."""

_UNFUSED = 1.0e-6
"""Milliseconds per element of the result for a separate bias and activation."""


def direct(layer: PlainLayer, rates: PlainRates) -> float:
    """Time of the direct convolution."""
    height, width = layer.size
    return (layer.batch or 1) * height * width * layer.inputs * layer.outputs * 9 / rates.direct


def winograd(layer: PlainLayer, tile: int, rates: PlainRates) -> float:
    """Time of Winograd's algorithm with output tiles of size `tile`, including reorders around it."""
    rows, columns = layer.tiles(tile)
    tiles = (layer.batch or 1) * rows * columns
    pairs, both = layer.inputs * layer.outputs, layer.inputs + layer.outputs
    product = (tile + 2) ** 2 * pairs * tiles / rates.product
    size = 4 * (tile + 2) ** 2 * pairs
    reading = size / next(rate for limit, rate in rates.weights if size <= limit)
    elements = tile * tile * tiles
    rate = rates.elements[0 if 4 * (tile + 2) ** 2 * tiles * both < rates.cache else 1]
    extra = elements * layer.outputs * _UNFUSED if layer.is_open else 0.0
    multiplied = max(product, reading) if rates.overlaps else product + reading
    return multiplied + elements * both / rate + extra + _START


def gains(layer: PlainLayer, machines: Sequence[PlainRates]) -> list[Choice]:
    """The algorithms predicted to be faster than the direct convolution on all machines, fastest first."""
    found = []
    for tile in TILES:
        pairs = [(direct(layer, rates), winograd(layer, tile, rates)) for rates in machines]
        if all(base >= SHORTEST and time < _MARGIN * base for base, time in pairs):
            found.append(Choice(tile, min(base - time for base, time in pairs), layer.growth(tile)))
    if not found:
        raise _reason(layer, machines)
    return sorted(found, key=lambda choice: -choice.saved)


def _reason(layer: PlainLayer, machines: Sequence[PlainRates]) -> Decline:
    shortest = min(machines, key=lambda rates: direct(layer, rates))
    base = direct(layer, shortest)
    if base < SHORTEST:
        reason = "direct convolution is expected to be as fast: it takes about {:.2f} ms, less than {} ms"
        return Decline(reason, base, SHORTEST)
    slowest = max(machines, key=lambda r: min(winograd(layer, tile, r) for tile in TILES) / direct(layer, r))
    return slower(direct(layer, slowest), {tile: winograd(layer, tile, slowest) for tile in TILES})
