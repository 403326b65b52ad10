"""How long kernels take in NCHW and in blocks, from sizes alone: the formulas of the cost model, and their figures.

Everything is in microseconds on one thread. `rates_of` gives what was measured on this machine, if `graphopt tune` has
been run, and the built-in figures otherwise. Other passes that weigh a convolution against something else ask
`convolution` and `reorder`.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.system.machine import Target
from graphopt_passes.rates import MachineRates

PASS = "convert_layout_nchwc"


@dataclass(frozen=True, slots=True)
class LayoutRates(MachineRates):
    """A machine's speed, per microsecond.

    Attributes:
        blocked: multiply-adds of a blocked convolution, by blocks of outputs: one, two, more.
        plain: multiply-adds of the matrix product in NCHW.
        stream: bytes that a blocked convolution reads and writes.
        copy: bytes that are unrolled and packed for the matrix product.
        store: bytes that the matrix product writes.
        depthwise: multiply-adds of a blocked depthwise convolution.
        depthwise_stream: bytes that it reads and writes.
        plain_depthwise: multiply-adds of a depthwise convolution in NCHW: without strides, with strides.
        per_group: microseconds that each of its groups takes at least.
        reorder: bytes through a reorder.
        start: microseconds that any kernel takes at least.
    """

    blocked: tuple[float, float, float]
    plain: float
    stream: float
    copy: float
    store: float
    depthwise: float
    depthwise_stream: float
    plain_depthwise: tuple[float, float]
    per_group: float
    reorder: float
    start: float


_ZEN4 = LayoutRates((61e3, 56e3, 59e3), 53e3, 52e3, 14.6e3, 48e3, 45e3, 31e3, (4.3e3, 1.85e3), 0.21, 13e3, 1.5)
RATES = {16: _ZEN4, 8: _ZEN4}
"""By block size, as `graphopt tune` measured them on one thread of a Zen 4 core with AVX-512 and onnxruntime 1.31.1.

None were measured for block 8. A core with AVX2 multiplies and adds as much per cycle as the one that was measured,
whose registers of 512 bits are worked on in two halves, so the same figures stand for both.
"""

_FEW_ROWS = 4
"""With this few outputs the matrix product does without packing."""


def rates_of(target: Target) -> LayoutRates:
    """What was measured on machines of a target, the built-in figures of its block size where nothing was."""
    return RATES[target.block].measured(PASS, target)


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """The sizes of a convolution that its time depends on.

    Attributes:
        inputs: input channels of all groups together.
        outputs: output channels.
        cells: positions of the kernel.
        positions: batch * height * width of the result.
        source: batch * height * width of the input.
        group: number of groups.
        merge: groups that the blocked form makes one.
        lanes_in: channels of the input in the blocked form, padding included.
        lanes_out: those of the result.
        strided: whether the window moves by more than one.
        depthwise: whether each channel is a group of its own.
    """

    inputs: int
    outputs: int
    cells: int
    positions: float
    source: float
    lanes_in: int
    lanes_out: int
    group: int = 1
    merge: int = 1
    strided: bool = False
    depthwise: bool = False


def plain(shape: ConvolutionSizes, rates: LayoutRates) -> float:
    """Time in NCHW."""
    per_group = shape.inputs // shape.group
    macs = shape.positions * shape.cells * shape.outputs * per_group
    if shape.depthwise:
        return macs / rates.plain_depthwise[shape.strided] + shape.outputs * rates.per_group + rates.start
    unrolled = shape.inputs * shape.cells * shape.positions / (2 if shape.outputs <= _FEW_ROWS else 1)
    copied = 4 * (unrolled + shape.outputs * per_group * shape.cells)
    stored = 4 * shape.positions * shape.outputs
    return macs / rates.plain + copied / rates.copy + stored / rates.store + rates.start


def blocked(shape: ConvolutionSizes, block: int, rates: LayoutRates) -> float:
    """Time in blocks, reorders not counted."""
    moved = 4 * (shape.source * shape.lanes_in + shape.positions * shape.lanes_out)
    if shape.depthwise:
        macs = shape.positions * shape.cells * shape.lanes_out
        return macs / rates.depthwise + moved / rates.depthwise_stream + rates.start
    groups = shape.group // shape.merge
    per_group = shape.lanes_in // groups
    rate = rates.blocked[min(max(shape.lanes_out // block // groups, 1), 3) - 1]
    moved += 4 * shape.lanes_out * per_group * shape.cells
    return shape.positions * shape.cells * shape.lanes_out * per_group / rate + moved / rates.stream + rates.start


def convolution(
    inputs: int, outputs: int, kernel: tuple[int, int], size: tuple[int, int], target: Target, *,
    batch: int = 1, stride: int = 1, group: int = 1,
) -> tuple[float, float]:  # fmt: skip
    """Microseconds of a convolution in NCHW and in blocks, without reorders.

    Args:
        inputs: input channels of all groups together.
        outputs: output channels.
        kernel: height and width of the kernel.
        size: height and width of the result.
        target: the machine.
        batch: images.
        stride: by how much the window moves in either direction.
        group: number of groups; those smaller than a block are reckoned as one.
    """
    rates, block = rates_of(target), target.block
    positions = batch * size[0] * size[1]
    depthwise = group > 1 and group == inputs == outputs
    whole = inputs // group % block == 0 and outputs // group % block == 0
    shape = ConvolutionSizes(
        inputs, outputs, kernel[0] * kernel[1], positions, positions * stride * stride,
        inputs if inputs < block and group == 1 else -(-inputs // block) * block, -(-outputs // block) * block,
        group=group, merge=1 if whole or depthwise else group, strided=stride > 1, depthwise=depthwise,
    )  # fmt: skip
    return plain(shape, rates), blocked(shape, block, rates)


def reorder(channels: int, positions: float, target: Target) -> float:
    """Microseconds of one ReorderInput or ReorderOutput of `positions` (batch * height * width) pixels."""
    rates = rates_of(target)
    return 4 * (-(-channels // target.block) * target.block) * positions / rates.reorder + rates.start
