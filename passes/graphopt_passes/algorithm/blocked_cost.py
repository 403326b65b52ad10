"""What a blocked convolution costs directly and by Winograd's algorithm, in milliseconds on one thread.

Each kernel of the blocked form has a rate of its own. That of the transforms, which do little but read and write,
falls once tiles are out of the cache; weights, 4 or 1.8 times as large, come from memory in a real model.
`graphopt tune` measures all of that on the machine it runs on; docs/winograd.md has the built-in figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from math import prod
from typing import Any

from graphopt.rewrite import Mismatch
from graphopt.system.machine import Target
from graphopt.system.tuned import figures
from graphopt_passes.algorithm.blocked import FUSED, BlockedLayer, Grid
from graphopt_passes.algorithm.choice import Choice, growth, slower, tables
from graphopt_passes.algorithm.transforms import TILES_OF, Filtering

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
    direct=58e6, product=56e6, weights=(23.5e6, 42e6), inward=(32e6, 21e6), outward=(25e6, 15.4e6), cache=5e6,
    gather=7.2e6, stream=30e6, start=0.003,
)  # fmt: skip
"""Of a Zen 4 core with AVX512, measured."""

NARROW = replace(BUILT_IN, direct=29e6, product=28e6)
"""For blocks of 8: scaled by the width of the registers, not measured."""

MARGIN = 0.88
"""The part of the direct time that Winograd's algorithm may take.

Layers that the model puts at 0.85 to 0.875 gained in SqueezeNet and GoogLeNet; those of 128 to 32 channels at 56x56 in
DenseNet, at 0.893, lost: 3.6 MB of tiles pass through the input transform as slowly as tiles out of the cache.
"""

MARGIN_OF_TAPS = 0.93
"""The same for a product with the taps as channels, whose weights are no larger."""

_STRIDED, _NARROW_IMAGE, _NARROWEST = 1.1, 1.35, 4
"""How much longer the direct convolution takes with strides, and on images of at most so many columns."""

_PARTS_OF_TAPS = 5

_PARTS = 14
"""Kernels of one layer, reshapes among them."""


def rates_of(target: Target) -> BlockedRates:
    """What was measured on machines of a target, the built-in figures where nothing was."""
    stated = figures(PASS, target)
    measured = BlockedRates.read(stated.get("rates", {})) if stated is not None else None
    return measured or (BUILT_IN if target.block == 16 else NARROW)


@dataclass(frozen=True, slots=True)
class Size:
    """What the time of a layer depends on.

    Attributes:
        inputs: input channels.
        outputs: output channels.
        size: height and width of the result; about those of the input as well.
        batch: images.
        residual: whether something is added to the result.
        kernel: height and width of the kernel.
        late: elementwise operators that follow the transforms; the direct convolution takes all of them in.
        strided: whether the window moves by more than one.
    """

    inputs: int
    outputs: int
    size: tuple[int, int]
    batch: int = 1
    kernel: tuple[int, int] = (3, 3)
    residual: bool = False
    late: int = 0
    strided: bool = False

    def __str__(self) -> str:
        return f"{self.inputs} to {self.outputs} at {self.size[0]}x{self.size[1]}"

    @classmethod
    def of(cls, layer: BlockedLayer) -> Size:
        """The size of a layer."""
        alone = layer.batch is None or layer.activation not in FUSED
        late = (layer.activation is not None and alone) + (layer.batch is None and layer.residual is not None)
        return cls(
            layer.inputs,
            layer.outputs,
            layer.size,
            layer.batch or 1,
            layer.sides,
            layer.residual is not None,
            late,
            strided=layer.strides != (1, 1),
        )


def direct_work(size: Size) -> tuple[float, float]:
    """Multiply-adds of the direct convolution, and bytes of its weights."""
    weights = prod(size.kernel) * size.inputs * size.outputs
    return 1.0 * size.batch * size.size[0] * size.size[1] * weights, 4.0 * weights


def work(size: Size, tile: int) -> dict[str, float]:
    """What each kernel does: bytes, of the product multiply-adds and bytes of weights."""
    (height, width), form = size.size, Filtering(tile, size.kernel)
    (rows, columns), (tall, wide) = form.outputs, form.inputs
    count = Grid(form.outputs, -(-height // rows), -(-width // columns), size.batch).count
    area, pairs, pixels = form.area, size.inputs * size.outputs, 4.0 * size.batch * height * width
    # Each axis reads and writes what there is: of inputs always a tile, of results less with each.
    inward = 2 * area * ((tall > 1) + (wide > 1))
    outward = (wide > 1) * tall * (wide + columns) + (tall > 1) * columns * (tall + rows)
    return {
        "gather": 4.0 * count * area * size.inputs + pixels * size.outputs * (1 + size.residual),
        "inward": 4.0 * count * inward * size.inputs,
        "product": 1.0 * count * area * pairs,
        "weights": 4.0 * area * pairs,
        "outward": 4.0 * count * outward * size.outputs,
        "stream": 2 * pixels * size.inputs + (size.residual + 2 * size.late) * pixels * size.outputs,
    }


def far(size: Size, tile: int, rates: BlockedRates) -> tuple[bool, bool]:
    """Whether the tiles of inputs and of products are out of the cache."""
    (height, width), form = size.size, Filtering(tile, size.kernel)
    rows, columns = form.outputs
    bytes_of = 4.0 * Grid(form.outputs, -(-height // rows), -(-width // columns), size.batch).count * form.area
    return bytes_of * size.inputs > rates.cache, bytes_of * size.outputs > rates.cache


def direct(size: Size, rates: BlockedRates) -> float:
    """Time of the direct convolution."""
    macs, weights = direct_work(size)
    slow = (_STRIDED if size.strided else 1.0) * (_NARROW_IMAGE if size.size[1] <= _NARROWEST else 1.0)
    return slow * macs / rates.direct + weights / rates.weights[0] + rates.start


def taps(size: Size, rates: BlockedRates) -> float:
    """Time of a 1x1 convolution with all taps as channels, from a blocked image to a blocked image."""
    macs, weights = direct_work(size)
    gathered = 4.0 * prod(size.kernel) * size.inputs * size.batch * prod(size.size)
    return macs / rates.product + weights / rates.weights[1] + gathered / rates.gather + _PARTS_OF_TAPS * rates.start


def winograd(size: Size, tile: int, rates: BlockedRates) -> float:
    """Time by Winograd's algorithm with output tiles of `tile`, from a blocked image to a blocked image."""
    amounts, (inward, outward) = work(size, tile), far(size, tile, rates)
    product = amounts["product"] / rates.product + amounts["weights"] / rates.weights[1]
    moved = amounts["gather"] / rates.gather + amounts["stream"] / rates.stream
    transforms = amounts["inward"] / rates.inward[inward] + amounts["outward"] / rates.outward[outward]
    return product + moved + transforms + _PARTS * rates.start


def gains(layer: BlockedLayer, rates: BlockedRates) -> list[Choice] | Mismatch:
    """The algorithms that are expected to be faster than the direct one, the fastest first."""
    size = Size.of(layer)
    base = direct(size, rates)
    times = {tile: winograd(size, tile, rates) for tile in TILES_OF[size.kernel] if not size.strided}
    if layer.batch == 1 and Grid((1, 1), *layer.size, 1).count == prod(layer.size):
        times[1] = taps(size, rates)
    found = [
        Choice(tile, base - time, growth(layer, tile), tables(layer, tile))
        for tile, time in times.items()
        if time < (MARGIN if tile > 1 else MARGIN_OF_TAPS) * base
    ]
    return sorted(found, key=lambda choice: -choice.saved) or slower(base, times, size.kernel)
