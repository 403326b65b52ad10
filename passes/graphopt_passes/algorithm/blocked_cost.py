"""Cost model of blocked convolutions, direct and by Winograd's algorithm, in milliseconds on one thread.

Each kernel has its own rate. The transforms are slower once tiles exceed the cache; the weights, 4 or 1.8 times as
large, are read from memory. `graphopt tune` measures the rates; docs/winograd.md has the built-in ones.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphopt.records import dataclass
from graphopt.system.machine import Target, cache_bytes, host
from graphopt.system.tuned import figures
from graphopt_passes.algorithm.blocked import FUSED, BlockedLayer, Grid
from graphopt_passes.algorithm.layer import Choice, slower
from graphopt_passes.algorithm.transforms import TILES_OF, Filtering
from graphopt_passes.layout import timing
from graphopt_passes.rates import MachineRates

PASS = "convert_conv_to_winograd"


@dataclass(frozen=True, slots=True)
class BlockedRates(MachineRates):
    """A machine's speed, per millisecond.

    Attributes:
        direct: multiply-adds of the direct convolution.
        product: multiply-adds of the product with the weights.
        weights: bytes of weights read from memory: by the direct convolution, by the product.
        inward: bytes that the input transform reads and writes, within the cache and beyond it.
        outward: bytes that the output transform reads and writes, within the cache and beyond it.
        cache: bytes of tiles that the cache holds.
        gather: bytes gathered into tiles or an image.
        stream: bytes copied or added.
        start: least milliseconds of any kernel.
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

    def direct_time(self, size: Size) -> float:
        macs, weights = size.direct_work
        slow = (_STRIDED if size.strided else 1.0) * (_NARROW_IMAGE if size.size[1] <= _NARROWEST else 1.0)
        return slow * macs / self.direct + weights / self.weights[0] + self.start

    def taps_time(self, size: Size) -> float:
        """Milliseconds of a 1x1 convolution with all taps as channels, from a blocked image to a blocked image."""
        macs, weights = size.direct_work
        gathered = 4.0 * prod(size.kernel) * size.inputs * size.batch * prod(size.size)
        return macs / self.product + weights / self.weights[1] + gathered / self.gather + _PARTS_OF_TAPS * self.start

    def winograd_time(self, size: Size, tile: int) -> float:
        """Milliseconds with output tiles of `tile`, from a blocked image to a blocked image."""
        amounts, (inward, outward) = size.work(tile), self.far(size, tile)
        product = amounts["product"] / self.product + amounts["weights"] / self.weights[1]
        moved = amounts["gather"] / self.gather + amounts["stream"] / self.stream
        transforms = amounts["inward"] / self.inward[inward] + amounts["outward"] / self.outward[outward]
        return product + moved + transforms + _PARTS * self.start

    def far(self, size: Size, tile: int) -> tuple[bool, bool]:
        """Whether the input tiles, and the tiles of products, exceed the cache."""
        tiles = 4.0 * size.tiles(tile) * Filtering(tile, size.kernel).area
        return tiles * size.inputs > self.cache, tiles * size.outputs > self.cache


BUILT_IN = BlockedRates(
    direct=58e6, product=56e6, weights=(23.5e6, 42e6), inward=(32e6, 21e6), outward=(25e6, 15.4e6), cache=5e6,
    gather=7.2e6, stream=30e6, start=0.003,
)  # fmt: skip
"""Measured on a Zen 4 core with AVX512."""

_MEASURED = {
    "avx2": BlockedRates(
        direct=48.6e6, product=44.7e6, weights=(18e6, 27e6), inward=(23e6, 21e6), outward=(22e6, 20e6), cache=5e6,
        gather=3.6e6, stream=19e6, start=0.003,
    )
}  # fmt: skip
"""Rates by instruction set; those of AVX2 were measured on a Zen 3 core."""

MARGIN = 0.88
"""The largest predicted ratio of Winograd's time to the direct time at which a layer is converted.

Layers predicted at 0.85 to 0.875 gained in SqueezeNet and GoogLeNet; those of 128 to 32 channels at 56x56 in DenseNet,
predicted at 0.893, lost: the input transform of 3.6 MB of tiles is as slow as beyond the cache.
"""

MARGIN_OF_TAPS = 0.93
"""The same ratio for a product with the taps as channels, whose weights do not grow."""

_STRIDED, _NARROW_IMAGE, _NARROWEST = 1.1, 1.35, 4
"""Slowdown of the direct convolution with strides, and on images of at most `_NARROWEST` columns."""

_PARTS_OF_TAPS = 5

_PARTS = 14
"""Number of kernels per layer, reshapes included."""


def rates_of(target: Target) -> BlockedRates:
    """The rates measured on a target's machines; without measurements, the built-in rates scaled to its speed."""
    return BUILT_IN.stated_by(figures(PASS, target)) or _at_the_speed_of(target)


def _at_the_speed_of(target: Target) -> BlockedRates:
    """The built-in rates, scaled by another machine's known speed of convolutions and reorders.

    Reading weights from memory, and the transforms with their tiny matrices, took as long on Zen 5 as on Zen 4.
    """
    given, their = (_MEASURED[target.name], timing.AVX2) if target.name in _MEASURED else (BUILT_IN, timing.ZEN4)
    known = timing.rates_of(target)
    adds, moved = known.blocked[-1] / their.blocked[-1], known.reorder / their.reorder
    cache = cache_bytes() if target == host() else None
    return replace(
        given, direct=given.direct * adds, product=given.product * adds, cache=cache or given.cache,
        gather=given.gather * moved, stream=given.stream * moved,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes that determine the time of a layer.

    Attributes:
        inputs: input channels.
        outputs: output channels.
        size: height and width of the result, and approximately of the input.
        batch: number of images.
        residual: whether something is added to the result.
        kernel: height and width of the kernel.
        late: elementwise operators after the transforms, all of which the direct convolution fuses.
        strided: whether a stride is greater than 1.
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
        alone = layer.is_open or layer.activation not in FUSED
        late = (layer.activation is not None and alone) + (layer.is_open and layer.residual is not None)
        return cls(
            layer.inputs, layer.outputs, layer.size, layer.batch or 1, layer.sides, layer.residual is not None, late,
            strided=layer.strides != (1, 1),
        )  # fmt: skip

    @property
    def direct_work(self) -> tuple[float, float]:
        """Multiply-adds of the direct convolution, and bytes of its weights."""
        weights = prod(self.kernel) * self.inputs * self.outputs
        return 1.0 * self.batch * prod(self.size) * weights, 4.0 * weights

    def tiles(self, tile: int) -> int:
        (height, width), (rows, columns) = self.size, Filtering(tile, self.kernel).outputs
        return Grid((rows, columns), -(-height // rows), -(-width // columns), self.batch).count

    def work(self, tile: int) -> dict[str, float]:
        """Amount of work by kernel: bytes moved; for the product, multiply-adds and bytes of weights."""
        form, count = Filtering(tile, self.kernel), self.tiles(tile)
        (rows, columns), (tall, wide) = form.outputs, form.inputs
        area, pairs, pixels = form.area, self.inputs * self.outputs, 4.0 * self.batch * prod(self.size)
        # Each axis reads and writes all data: input tiles keep their size, result tiles shrink with each axis.
        inward = 2 * area * ((tall > 1) + (wide > 1))
        outward = (wide > 1) * tall * (wide + columns) + (tall > 1) * columns * (tall + rows)
        return {
            "gather": 4.0 * count * area * self.inputs + pixels * self.outputs * (1 + self.residual),
            "inward": 4.0 * count * inward * self.inputs,
            "product": 1.0 * count * area * pairs,
            "weights": 4.0 * area * pairs,
            "outward": 4.0 * count * outward * self.outputs,
            "stream": 2 * pixels * self.inputs + (self.residual + 2 * self.late) * pixels * self.outputs,
        }


def gains(layer: BlockedLayer, rates: BlockedRates) -> list[Choice]:
    """The algorithms predicted to be faster than the direct convolution, fastest first."""
    size = Size.of(layer)
    base = rates.direct_time(size)
    times = {tile: rates.winograd_time(size, tile) for tile in TILES_OF[size.kernel] if not size.strided}
    if layer.batch == 1 and Grid((1, 1), *layer.size, 1).count == prod(layer.size):
        times[1] = rates.taps_time(size)
    found = [
        Choice(tile, base - time, layer.growth(tile), layer.tables(tile))
        for tile, time in times.items()
        if time < (MARGIN if tile > 1 else MARGIN_OF_TAPS) * base
    ]
    if not found:
        raise slower(base, times, size.kernel)
    return sorted(found, key=lambda choice: -choice.saved)
