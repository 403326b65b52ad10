"""What a blocked convolution costs directly and by Winograd's algorithm, in milliseconds on one thread.

Each kernel has a rate of its own. That of the transforms falls once tiles are out of the cache; weights, 4 or 1.8 times
as large, come from memory. `graphopt tune` measures that; docs/winograd.md has the built-in figures.
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
        """Whether the tiles of inputs and of products are out of the cache."""
        tiles = 4.0 * size.tiles(tile) * Filtering(tile, size.kernel).area
        return tiles * size.inputs > self.cache, tiles * size.outputs > self.cache


BUILT_IN = BlockedRates(
    direct=58e6, product=56e6, weights=(23.5e6, 42e6), inward=(32e6, 21e6), outward=(25e6, 15.4e6), cache=5e6,
    gather=7.2e6, stream=30e6, start=0.003,
)  # fmt: skip
"""Of a Zen 4 core with AVX512, measured."""

_MEASURED = {
    "avx2": BlockedRates(
        direct=48.6e6, product=44.7e6, weights=(18e6, 27e6), inward=(23e6, 21e6), outward=(22e6, 20e6), cache=5e6,
        gather=3.6e6, stream=19e6, start=0.003,
    )
}  # fmt: skip
"""By instruction set: that of AVX2 is of a Zen 3 core."""

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
    """What was measured on machines of a target; where nothing was, the built-in figures, brought to its speed."""
    return BUILT_IN.stated_by(figures(PASS, target)) or _at_the_speed_of(target)


def _at_the_speed_of(target: Target) -> BlockedRates:
    """The built-in figures in proportion to what is known of convolutions and reorders on another machine.

    Weights from memory, and the transforms, whose matrices are tiny, took as long on Zen 5 as on Zen 4.
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
        """What each kernel does: bytes, of the product multiply-adds and bytes of weights."""
        form, count = Filtering(tile, self.kernel), self.tiles(tile)
        (rows, columns), (tall, wide) = form.outputs, form.inputs
        area, pairs, pixels = form.area, self.inputs * self.outputs, 4.0 * self.batch * prod(self.size)
        # Each axis reads and writes what there is: of inputs always a tile, of results less with each.
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
    """The algorithms that are expected to be faster than the direct one, the fastest first."""
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
