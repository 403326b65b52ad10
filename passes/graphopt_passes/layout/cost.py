"""What an operator costs in NCHW and in blocks, and what a reorder costs, in microseconds on one thread.

The model is small: multiply-adds at the peak rate of the kernels, plus the memory that the NCHW kernels write and read
besides (the unrolled input of a convolution, the weights packed at every run). On a 16-channel-block machine it gives
the measured ratios of NCHW to blocked time within about a tenth:

    =====================================  ========  =====
    convolution                            measured  model
    =====================================  ========  =====
    3x3, 64 to 64 channels at 56x56            1.20   1.19
    3x3, 16 to 16 at 56x56                     1.80   1.75
    3x3, 20 to 20 at 56x56                     0.67   0.63
    1x1, 24 to 24 at 56x56                     0.74   0.56
    3x3, 12 to 12 at 56x56, plain input        1.45   1.50
    3x3, 64 to 1 at 56x56, with reorders       0.64   0.76
    3x3, 64 to 4 at 56x56, with reorders       0.98   0.94
    32 groups, 256 to 256 at 28x28             1.25   1.25
    32 groups, 128 to 128 at 28x28             1.00   1.00
    =====================================  ========  =====

Measured: one thread of a Zen 4 core, onnxruntime 1.31.1, interleaved medians, noise about a tenth. docs/layout.md says
how to measure again. With dynamic sizes a nominal size is used; only ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphopt.ir import Value
from graphopt_passes.layout.extents import pixels
from graphopt_passes.layout.facts import Facts, Form
from graphopt_passes.layout.weights import Layout, lanes, padded


@dataclass(frozen=True, slots=True)
class Rates:
    """A machine's speed.

    Attributes:
        macs: multiply-adds of a dense convolution, per microsecond.
        depthwise: multiply-adds of a blocked depthwise convolution, per microsecond.
        plain_depthwise: the same in NCHW.
        memory: bytes per microsecond through the unrolling of inputs and the packing of weights.
        reorder: bytes per microsecond through a reorder.
        start: microseconds that any kernel takes at least.
    """

    macs: float
    depthwise: float
    plain_depthwise: float
    memory: float
    reorder: float
    start: float


RATES = {
    16: Rates(macs=60e3, depthwise=20e3, plain_depthwise=2.2e3, memory=20e3, reorder=27e3, start=1.5),
    8: Rates(macs=30e3, depthwise=12e3, plain_depthwise=2.0e3, memory=20e3, reorder=20e3, start=1.5),
}
"""By block size. Those of 8 are scaled from those of 16 by the width of the registers, not measured."""

_COLUMNS = 16
"""A matrix product works on this many columns at a time, and wastes those that a small image does not fill."""

_POOL_CELL = {"MaxPool": (0.12e-3, 0.02e-3), "AveragePool": (0.45e-3, 0.03e-3)}
"""Microseconds per window cell, in NCHW and blocked."""


class Costs:
    """Prices of forms and reorders for one block size.

    Args:
        facts: layouts and extents of values.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.block = facts.block
        self.rates = RATES[facts.block]

    def form(self, form: Form) -> tuple[float, float]:
        """Time of a node in NCHW and in its blocked form."""
        if form.kind in ("conv", "depthwise", "grouped"):
            return self._convolution(form)
        if form.kind == "pool":
            return self._pool(form)
        if form.kind in ("concat", "split", "slice", "global_pool"):
            elements = sum(self._elements(v) for v in form.operands)
            return self._pass_over(elements, elements * self._waste(form), 2)
        if form.kind == "upsample":
            elements = self._elements_of(form)
            slow = elements * 4 / (self.rates.memory / 8)
            return slow + self.rates.start, slow / 5 + self.rates.start
        if form.kind in ("to_nhwc", "from_nhwc"):
            return self._transpose(form)
        return self._elementwise(form)

    def _transpose(self, form: Form) -> tuple[float, float]:
        """To and from NHWC: the reorder costs as much as the transpose, but for the padding."""
        layout = form.layouts[0] if form.layouts else self.facts.layout(form.operands[0]) or (self.block,)
        elements = sum(layout) * pixels(form.extents, sum(layout))
        return self._pass_over(elements, elements * lanes(layout, self.block) / sum(layout), 3)

    def _elementwise(self, form: Form) -> tuple[float, float]:
        """Elementwise nodes cost as much in either form, but for the padding and but for what fuses."""
        elements = self._elements_of(form)
        plain, blocked = self._pass_over(elements, elements * self._waste(form), 1 + len(form.operands))
        if form.data.get("fuses"):
            return (plain if form.data["fuses"] == "residual" else 0.0), 0.5 * (blocked - self.rates.start) * (
                form.data["fuses"] == "residual"
            )
        return plain, blocked

    def _pass_over(self, plain: float, blocked: float, times: int) -> tuple[float, float]:
        rate = self.rates.reorder * 1.5
        return plain * 4 * times / rate + self.rates.start, blocked * 4 * times / rate + self.rates.start

    def _convolution(self, form: Form) -> tuple[float, float]:
        weight = form.node.inputs[1]
        assert weight is not None
        tensor = weight.constant_tensor
        assert tensor is not None
        outputs, per_group, *kernel = tensor.dims
        positions = pixels(form.extents, outputs)
        cells = prod(kernel)
        rates = self.rates
        macs = positions * cells * outputs * per_group
        if form.kind == "depthwise":
            plain = macs / rates.plain_depthwise
            return plain + rates.start, macs * self._waste(form) / rates.depthwise + rates.start
        group = int(form.data["group"])  # type: ignore[call-overload]
        inputs = per_group * group
        filled = positions / (-(-positions // _COLUMNS) * _COLUMNS)
        unrolled = inputs * cells * positions * 4 if cells > 1 else 0
        moved = unrolled + outputs * per_group * cells * 4
        plain = macs / rates.macs / filled + moved / rates.memory
        merge = int(form.data["merge"])  # type: ignore[call-overload]
        wide_in = inputs // group * merge if form.kind == "grouped" else self._lanes_in(form, inputs)
        blocked = positions * cells * padded(outputs, self.block) * wide_in / rates.macs
        return plain + rates.start, blocked + rates.start

    def _lanes_in(self, form: Form, inputs: int) -> int:
        if form.plain:
            return inputs
        layout = self.facts.layout(form.operands[0]) or (inputs,)
        return lanes(layout, self.block)

    def _pool(self, form: Form) -> tuple[float, float]:
        channels = sum(form.layouts[0])
        cells = prod(form.node.attr("kernel_shape")) * pixels(form.extents, channels) * channels
        plain, blocked = _POOL_CELL[form.node.op_type]
        return cells * plain + self.rates.start, cells * self._waste(form) * blocked + self.rates.start

    def _waste(self, form: Form) -> float:
        layout = form.layouts[0]
        return lanes(layout, self.block) / sum(layout)

    def _elements(self, value: Value) -> float:
        layout = self.facts.layout(value)
        return sum(layout) * pixels(self.facts.extents(value), sum(layout)) if layout else 0.0

    def _elements_of(self, form: Form) -> float:
        channels = sum(form.layouts[0])
        return channels * pixels(form.extents, channels)

    def reorder(self, value: Value, layout: Layout) -> float:
        """Time to bring a value from one form to the other."""
        size = 4 * lanes(layout, self.block) * pixels(self.facts.extents(value), sum(layout))
        passes = 1 if len(layout) == 1 else 2
        return passes * (size / self.rates.reorder + self.rates.start)

    def plain_input(self, form: Form) -> float:
        """What a convolution over few channels costs more when its input comes blocked, and so padded."""
        _, blocked = self.form(form)
        inputs = sum(self.facts.layout(form.operands[0]) or (self.block,))
        return (blocked - self.rates.start) * (self.block / inputs - 1)
