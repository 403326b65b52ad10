"""What a blocked 3x3 convolution costs directly and by Winograd's algorithm, in milliseconds on one thread.

Each kernel of the blocked form has a rate of its own. That of the transforms, which do little but read and write,
falls once tiles are out of the cache; weights, 4 or 1.8 times as large, come from memory in a real model.
`graphopt tune` measures all of that on the machine it runs on; docs/winograd.md has the built-in figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from graphopt.rewrite import Mismatch
from graphopt.rewrite.target import Target
from graphopt.rewrite.tuned import figures
from graphopt_passes.algorithm.blocked import BlockedLayer, Grid
from graphopt_passes.algorithm.choice import Choice, growth, slower
from graphopt_passes.algorithm.transforms import TILES

PASS = "convert_conv_to_winograd"


PAIRS = ("weights", "inward", "outward")
"""Rates of two numbers."""


@dataclass(frozen=True, slots=True)
class BlockedRates:
    """A machine's speed, per millisecond.

    Attributes:
        direct: multiply-adds of the direct convolution.
        product: multiply-adds of the product with the weights.
        weights: bytes of weights that come from memory: for the direct convolution, for the product.
        inward: bytes that the input transform reads and writes, in the cache and out of it.
        outward: bytes that the output transform reads and writes, in the cache and out of it.
        cache: bytes of tiles above which they are out of it.
        gather: bytes that are gathered to tiles or to an image.
        stream: bytes that are copied or added.
        start: milliseconds that any kernel takes at least.
    """

    direct: float
    product: float
    weights: tuple[float, float]
    inward: tuple[float, float]
    outward: tuple[float, float]
    cache: float
    gather: float
    stream: float
    start: float

    @classmethod
    def read(cls, stated: dict[str, Any]) -> BlockedRates | None:
        """Rates as `asdict` gives them and JSON holds them; None where anything is missing or not positive."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            given, size = stated.get(field.name), 2 if field.name in PAIRS else 1
            parts = given if isinstance(given, list | tuple) else [given]
            if len(parts) != size or not all(isinstance(part, int | float) and part > 0 for part in parts):
                return None
            values[field.name] = tuple(parts) if size == 2 else given
        return cls(**values)

    def stated(self) -> dict[str, Any]:
        """Rates as JSON holds them."""
        return asdict(self)


BUILT_IN = BlockedRates(
    direct=59e6, product=59e6, weights=(23e6, 38e6), inward=(35e6, 19e6), outward=(25e6, 15e6), cache=5e6,
    gather=7.2e6, stream=20e6, start=0.003,
)  # fmt: skip
"""Of a Zen 4 core with AVX512."""

MARGIN = 0.92
"""The part of the direct time that Winograd's algorithm may take."""

_PARTS = 14
"""Kernels of one layer, reshapes among them."""


def rates_of(target: Target) -> BlockedRates:
    """What was measured on machines of a target, the built-in figures where nothing was."""
    stated = figures(PASS, target)
    measured = BlockedRates.read(stated.get("rates", {})) if stated is not None else None
    return measured or BUILT_IN


def direct(layer: BlockedLayer, rates: BlockedRates) -> float:
    """Time of the direct convolution."""
    (height, width), pairs = layer.size, layer.inputs * layer.outputs
    macs = (layer.batch or 1) * height * width * pairs * 9
    return macs / rates.direct + 36 * pairs / rates.weights[0] + rates.start


def winograd(layer: BlockedLayer, tile: int, rates: BlockedRates) -> float:
    """Time by Winograd's algorithm with output tiles of `tile`, from a blocked image to a blocked image."""
    return sum(kernels(layer, tile, rates).values()) + _PARTS * rates.start


def kernels(layer: BlockedLayer, tile: int, rates: BlockedRates) -> dict[str, float]:
    """Time of each kernel."""
    rows, columns = layer.tiles(tile)
    (height, width), batch = layer.size, layer.batch or 1
    count, side = Grid(tile, rows, columns, batch).count, tile + 2
    area, pairs, lanes = side * side, layer.inputs * layer.outputs, 4 * count
    image_in, image_out = 4 * batch * layer.source[0] * layer.source[1], 4 * batch * height * width * layer.outputs
    found = {
        "gather": (lanes * area * layer.inputs + image_out) / rates.gather,
        "inward": lanes * 4 * area * layer.inputs / rates.inward[lanes * area * layer.inputs > rates.cache],
        "product": area * pairs * count / rates.product + 4 * area * pairs / rates.weights[1],
        "outward": lanes
        * (side + tile) ** 2
        * layer.outputs
        / rates.outward[lanes * area * layer.outputs > rates.cache],
        "copy": 2 * image_in * layer.inputs / rates.stream,
    }
    if layer.residual is not None:
        passes = 1 + (layer.activation is not None)
        found["sum"] = image_out / rates.gather + 3 * passes * image_out / rates.stream
    if layer.batch is None:
        passes = (layer.bias is not None) + (layer.activation is not None)
        found["late"] = 2 * passes * image_out / rates.stream
    return found


def gains(layer: BlockedLayer, rates: BlockedRates) -> list[Choice] | Mismatch:
    """The algorithms that are expected to be faster than the direct one, the fastest first."""
    base = direct(layer, rates)
    times = {tile: winograd(layer, tile, rates) for tile in TILES}
    found = [Choice(tile, base - time, growth(layer, tile)) for tile, time in times.items() if time < MARGIN * base]
    return sorted(found, key=lambda choice: -choice.saved) or slower(base, list(times.values()))
