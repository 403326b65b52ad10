"""The time of kernels in NCHW and in blocks, from sizes alone, in microseconds on one thread.

`rates_of` gives the rates that `graphopt tune`, or the short calibration at first use, measured on this machine, and
otherwise the built-in rates of its instruction set and core.
"""

from __future__ import annotations

from dataclasses import replace

from graphopt.records import dataclass
from graphopt.system import tuned
from graphopt.system.machine import Target
from graphopt_passes.layout.weights import groups_in_one, padded
from graphopt_passes.rates import MachineRates

PASS = "convert_layout_nchwc"


@dataclass(frozen=True, slots=True)
class LayoutRates(MachineRates):
    """A machine's speed, per microsecond.

    Attributes:
        blocked: multiply-adds of a blocked convolution, with one, two, or more blocks of outputs.
        plain: multiply-adds of the matrix product in NCHW.
        stream: bytes that a blocked convolution reads and writes.
        weight: bytes of weights that the matrix product reads.
        unroll: bytes that are unrolled for the matrix product.
        rows: rows of pixels that are unrolled, however long.
        pack: bytes that are packed for the matrix product.
        store: bytes that the matrix product writes.
        depthwise: multiply-adds of a blocked depthwise convolution.
        depthwise_stream: bytes that a blocked depthwise convolution reads and writes.
        plain_depthwise: multiply-adds of a depthwise convolution in NCHW: without strides, with strides.
        per_group: the least microseconds for each group of a depthwise convolution in NCHW.
        reorder: bytes through a reorder.
        start: the least microseconds of any kernel.
        error: the typical relative error of the model's ratio of both forms.
    """

    blocked: tuple[float, float, float]
    plain: float
    stream: float
    weight: float
    unroll: float
    rows: float
    pack: float
    store: float
    depthwise: float
    depthwise_stream: float
    plain_depthwise: tuple[float, float]
    per_group: float
    reorder: float
    start: float
    error: float


ZEN4 = LayoutRates(
    (61e3, 56e3, 59e3), 53e3, 52e3, 18e3, 61e3, 380.0, 24e3, 48e3, 45e3, 31e3, (4.3e3, 1.85e3), 0.21, 13e3, 1.5, 0.1
)  # fmt: skip
"""Measured by `graphopt tune` on one thread of a Zen 4 core with AVX512 and onnxruntime 1.31.1."""

ZEN5 = LayoutRates(
    (103e3, 130e3, 130e3), 126e3, 145e3, 25e3, 80e3, 590.0, 46e3, 60e3, 115e3, 68e3, (6.4e3, 3.1e3), 0.1, 25e3,
    1.5, 0.06,
)  # fmt: skip
"""The same for a Zen 5 core, with onnxruntime 1.32.0."""

AVX2 = LayoutRates(
    (27e3, 40e3, 49e3), 48e3, 47e3, 16e3, 46e3, 290.0, 19e3, 48e3, 30e3, 37e3, (3.6e3, 1.6e3), 0.24, 11e3, 2.0, 0.15
)  # fmt: skip
"""The same for a Zen 3 core, which has AVX2 but no AVX512, with onnxruntime 1.32.0; other such cores differ from it."""

_XEON = LayoutRates(
    (85e3, 88e3, 90e3), 100e3, 60e3, 15e3, 50e3, 310.0, 21e3, 36e3, 70e3, 34e3, (4e3, 1.9e3), 0.25, 12e3, 2.0, 0.2
)  # fmt: skip
_NEON = LayoutRates(
    (21e3, 20e3, 21e3), 22e3, 24e3, 10e3, 33e3, 210.0, 14e3, 24e3, 15e3, 14e3, (3e3, 1.5e3), 0.25, 8e3, 2.0, 0.2
)  # fmt: skip

RATES = {
    ("avx512", "zen4"): ZEN4, ("avx512", "zen5"): ZEN5, ("avx512", "xeon"): _XEON, ("neon", ""): _NEON,
    ("avx512", ""): replace(ZEN4, error=0.2), ("avx2", ""): AVX2,
}  # fmt: skip
"""By instruction set and core; those of Zen 3, Zen 4 and Zen 5 were measured. On Zen 3 and 4 the unrolling, packing and
reading of weights was measured as one rate, which is divided here in the proportions of Zen 5.

The others are estimates, with twice the error: multiply-adds at nine tenths of the peak, two of 16 lanes per cycle at
2.8 GHz (Xeon), and two of 4 lanes at 2.9 GHz (NEON), and bytes in proportion to the copying speed of such machines.
Other machines count as AVX2.
"""

_ONE_BY_ONE = 4
"""How many times as long unrolling takes with strides, when pixels are copied one by one and not in runs."""


def built_in(target: Target) -> LayoutRates:
    """The built-in rates of a target, not measured on the machine itself."""
    return RATES.get((target.name, target.core)) or RATES.get((target.name, "")) or AVX2


def rates_of(target: Target) -> LayoutRates:
    """The rates measured on machines of a target, or the built-in ones if there are none."""
    given = built_in(target)
    figures = tuned.figures(PASS, target)
    if figures is None:
        measure = "graphopt_passes.layout.calibration:calibrate"
        figures = tuned.calibration(PASS, target, measure, lambda kept: given.stated_by(kept) is not None)
    return given.stated_by(figures) or given


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """The sizes of a convolution that its time depends on.

    Attributes:
        inputs: input channels of all groups together.
        outputs: output channels.
        cells: positions of the kernel.
        rows: batch * height of the result.
        positions: batch * height * width of the result.
        source: batch * height * width of the input.
        group: number of groups.
        merge: how many groups the blocked form merges into one.
        lanes_in: channels of the input in the blocked form, padding included.
        lanes_out: channels of the result in the blocked form, padding included.
        strided: whether the window moves by more than one.
        depthwise: whether each channel is a group of its own.
    """

    inputs: int
    outputs: int
    cells: int
    rows: float
    positions: float
    source: float
    lanes_in: int
    lanes_out: int
    group: int = 1
    merge: int = 1
    strided: bool = False
    depthwise: bool = False

    @classmethod
    def of(
        cls, inputs: int, outputs: int, cells: int, size: tuple[int, int], block: int, *,
        batch: int = 1, stride: int = 1, group: int = 1,
    ) -> ConvolutionSizes:  # fmt: skip
        """The sizes of a convolution whose result has height and width `size`."""
        rows = batch * size[0]
        positions = rows * size[1]
        depthwise = group > 1 and group == inputs == outputs
        lanes_in = inputs if group == 1 and inputs < block else padded(inputs, block)
        merge = 1 if depthwise else groups_in_one(group, (inputs // group, outputs // group), block)
        return cls(
            inputs, outputs, cells, rows, positions, positions * stride**2, lanes_in, padded(outputs, block),
            group=group, merge=merge, strided=stride > 1, depthwise=depthwise,
        )  # fmt: skip

    @property
    def count(self) -> int:
        """Groups of the blocked form."""
        return -(-self.group // self.merge)


def plain(shape: ConvolutionSizes, rates: LayoutRates) -> float:
    """Time in NCHW."""
    per_group = shape.inputs // shape.group
    macs = shape.positions * shape.cells * shape.outputs * per_group
    if shape.depthwise:
        return macs / rates.plain_depthwise[shape.strided] + shape.outputs * rates.per_group + rates.start
    read = shape.inputs * shape.cells * shape.positions
    stored = 4 * shape.positions * shape.outputs
    time = macs / rates.plain + 4 * shape.outputs * per_group * shape.cells / rates.weight + stored / rates.store
    if shape.cells > 1 or shape.strided:
        time += 4 * read * (_ONE_BY_ONE if shape.strided else 1) / rates.unroll
        time += shape.inputs * shape.cells * shape.rows / rates.rows
    single = shape.outputs == shape.group  # a matrix times a vector, which is not packed
    return time + 4 * read / (rates.stream if single else rates.pack) + rates.start


def blocked(shape: ConvolutionSizes, block: int, rates: LayoutRates) -> float:
    """Time in blocks, reorders not counted."""
    moved = 4 * (shape.source * shape.lanes_in + shape.positions * shape.lanes_out)
    if shape.depthwise:
        macs = shape.positions * shape.cells * shape.lanes_out
        return macs / rates.depthwise + moved / rates.depthwise_stream + rates.start
    per_group = shape.lanes_in // shape.count
    rate = rates.blocked[min(max(shape.lanes_out // block // shape.count, 1), 3) - 1]
    weights = shape.lanes_out * per_group * shape.cells
    return shape.positions * weights / rate + (moved + 4 * weights) / rates.stream + rates.start


def convolution(
    inputs: int, outputs: int, kernel: tuple[int, int], size: tuple[int, int], target: Target, *,
    batch: int = 1, stride: int = 1, group: int = 1,
) -> tuple[float, float]:  # fmt: skip
    """Microseconds of a convolution in NCHW and in blocks, without reorders.

    Channels are those of all groups, and `size` that of the result.
    """
    rates, block = rates_of(target), target.block
    cells = kernel[0] * kernel[1]
    shape = ConvolutionSizes.of(inputs, outputs, cells, size, block, batch=batch, stride=stride, group=group)
    return plain(shape, rates), blocked(shape, block, rates)


def reorder(channels: int, positions: float, target: Target) -> float:
    """Microseconds of one ReorderInput or ReorderOutput of `positions` (batch * height * width) pixels."""
    rates = rates_of(target)
    return 4 * padded(channels, target.block) * positions / rates.reorder + rates.start
