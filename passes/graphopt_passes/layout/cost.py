"""What an operator costs in NCHW and in blocks, and what a reorder costs, in microseconds on one thread.

The model is small. A blocked convolution multiplies and adds at a rate that depends on how many blocks of outputs share
an input, and reads and writes its tensors once. In NCHW it is a matrix product: its unrolled input and its weights are
copied into the order that the product wants, at every run, and the result is written. So channels that fill their
blocks gain, and those that are mostly padding lose. NCHW time divided by blocked time, 16 channels a block:

    ========================================  ========  =====
    convolution                               measured  model
    ========================================  ========  =====
    3x3, 64 to 64 channels at 56x56               1.26   1.33
    3x3, 512 to 512 at 7x7                        1.16   1.31
    3x3, 32 to 32 at 56x56                        1.45   1.50
    3x3, 24 to 24 at 56x56                        0.92   0.94
    3x3, 20 to 20 at 56x56                        0.69   0.70
    1x1, 24 to 24 at 56x56                        0.79   0.85
    1x1, 24 to 144 at 56x56                       0.96   0.93
    1x1, 64 to 64 at 56x56                        1.19   1.25
    1x1, 320 to 1280 at 7x7                       1.47   1.29
    1x1, 64 to 12 at 56x56                        1.21   1.42
    1x1, 64 to 4 at 56x56                         0.66   0.61
    3x3, 64 to 4 at 56x56                         1.06   0.79
    3x3, 64 to 1 at 56x56                         0.68   0.59
    5x5 depthwise, 240 at 28x28                   7.18   7.23
    3x3 depthwise, 960 at 7x7                    13.78  13.44
    3x3 in 32 groups, 512 to 512 at 14x14         2.29   2.13
    ========================================  ========  =====

Reorders are not counted. Measured by `graphopt tune --layout`, which prints the same table for any machine, on one
thread of a Zen 4 core with onnxruntime 1.31.1; over all of its convolutions the model is 9 % off. Where sizes are
dynamic a nominal size is used; only ratios matter.
"""

from __future__ import annotations

from math import prod
from typing import Any

from graphopt.ir import Value
from graphopt_passes.layout import timing
from graphopt_passes.layout.extents import nominal, pixels
from graphopt_passes.layout.facts import Facts, Form, Kind
from graphopt_passes.layout.timing import RATES, Rates, Shape
from graphopt_passes.layout.transposed import Phases
from graphopt_passes.layout.weights import Layout, lanes

_SECOND_PASS = 0.3
_FUSED_IN_NCHW = frozenset({"Clip", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})

_RESHAPES = 1.5
"""What two Reshape take that move nothing, in starts of a kernel."""

_POOL_CELL = {"MaxPool": (0.12e-3, 0.02e-3), "AveragePool": (0.45e-3, 0.03e-3)}
"""Microseconds per window cell, in NCHW and blocked."""

_UPSAMPLE = {"linear": (1.4e-3, 0.37e-3), "nearest": (0.2e-3, 0.13e-3)}
"""Microseconds per element of the result, in NCHW and blocked."""


_COLUMNS, _COLUMNS_IN_A_ROW = (0.2e-3, 1.0e-3), 0.15e-3
"""Microseconds for each product that a transposed convolution in NCHW adds to its result: in the cache, out of it, and
with a stride of one.
"""

_IN_ORDER = (0.55e-3, 1.25e-3)
"""Microseconds for each result of a blocked one that is moved to its place: in the cache, and out of it."""

_NEAR = 3e5
"""Elements that stay in the cache."""


class Costs:
    """Prices of forms and reorders for one block size.

    Args:
        facts: layouts and extents of values.
        rates: the machine's speed; the built-in figures of the block size when None.
    """

    def __init__(self, facts: Facts, rates: Rates | None = None) -> None:
        self.facts = facts
        self.block = facts.block
        self.rates = rates or RATES[facts.block]

    def form(self, form: Form) -> tuple[float, float]:
        """Time of a node in NCHW and in its blocked form."""
        plain, blocked = self._bare(form)
        # What enters anew for this node alone belongs to its price.
        return plain, blocked + self.enter(form.operands[0]) if form.by_plain and not form.plain else blocked

    def _bare(self, form: Form) -> tuple[float, float]:
        if form.kind in (Kind.CONV, Kind.DEPTHWISE, Kind.GROUPED):
            return self._convolution(form)
        if form.kind is Kind.TRANSPOSED:
            return self._transposed(form)
        if form.kind is Kind.POOL:
            return self._pool(form)
        if form.kind in (Kind.CONCAT, Kind.SPLIT, Kind.SLICE, Kind.GLOBAL_POOL, Kind.GLOBAL_ROW):
            elements = sum(self._elements(v) for v in form.operands)
            return self._pass_over(elements, elements * self._waste(form), 2)
        if form.kind is Kind.UPSAMPLE:
            return self._upsample(form)
        if form.kind is Kind.PIXEL_GATE:
            elements = self._elements_of(form)
            plain, blocked = self._pass_over(elements, elements * self._waste(form), 2)
            spread = self._pass_over(0, elements / sum(form.layouts[0]) * self.block, 2)[1]
            return plain, blocked + spread + _RESHAPES * self.rates.start
        if form.kind is Kind.PRELU:
            elements = self._elements_of(form)
            # What stays in NCHW is spelled out later, in four operators instead of three.
            plain, blocked = self._pass_over(elements, elements * self._waste(form), 2)
            return 5 * plain, 4 * blocked
        if form.kind in (Kind.PAD, Kind.CROP):
            elements = self._elements_of(form)
            plain, blocked = self._pass_over(elements, elements * self._waste(form), 2)
            return plain, blocked + _RESHAPES * self.rates.start
        if form.kind in (Kind.TO_NHWC, Kind.FROM_NHWC):
            return self._transpose(form)
        return self._elementwise(form)

    def _upsample(self, form: Form) -> tuple[float, float]:
        """Linear interpolation computes as much as it writes; nearest only writes."""
        elements = self._elements_of(form)
        plain, blocked = _UPSAMPLE[str(form.data["mode"])]
        return elements * plain + self.rates.start, elements * self._waste(form) * blocked + self.rates.start

    def _transpose(self, form: Form) -> tuple[float, float]:
        """To and from NHWC: the reorder costs as much as the transpose, but for the padding."""
        layout = form.layouts[0] if form.layouts else self.facts.layout(form.operands[0]) or (self.block,)
        elements = sum(layout) * pixels(form.extents, sum(layout))
        return self._pass_over(elements, elements * lanes(layout, self.block) / sum(layout), 3)

    def _elementwise(self, form: Form) -> tuple[float, float]:
        """Elementwise nodes cost as much in either form, but for the padding and but for what fuses."""
        elements = self._elements_of(form)
        plain, blocked = self._pass_over(elements, elements * self._waste(form), 1 + len(form.operands))
        fuses = form.data.get("fuses")
        if fuses == "activation":
            # Convolutions in NCHW take in the common activations too, in a second pass over what they just wrote.
            common = form.node.op in _FUSED_IN_NCHW
            return (_SECOND_PASS * (plain - self.rates.start) if common else plain), 0.0
        if fuses == "residual":
            # The sum costs the convolution another input to read.
            return plain, 0.5 * (blocked - self.rates.start)
        return plain, blocked

    def _pass_over(self, plain: float, blocked: float, times: int) -> tuple[float, float]:
        rate = self.rates.reorder * 3
        return plain * 4 * times / rate + self.rates.start, blocked * 4 * times / rate + self.rates.start

    def _convolution(self, form: Form) -> tuple[float, float]:
        shape = self.shape(form)
        return timing.plain(shape, self.rates), timing.blocked(shape, self.block, self.rates)

    def shape(self, form: Form) -> Shape:
        """The sizes of a convolution in its blocked form."""
        weight = form.node.inputs[1]
        assert weight is not None
        tensor = weight.constant_tensor
        assert tensor is not None
        outputs, per_group, *kernel = tensor.dims
        group, merge = int(form.data["group"]), int(form.data["merge"])  # type: ignore[call-overload]
        inputs = per_group * group
        positions = pixels(form.extents, outputs)
        source = self._elements(form.operands[0]) / inputs or positions
        sizes: dict[str, Any] = {"group": group, "merge": merge, "depthwise": form.kind is Kind.DEPTHWISE}
        strided = max(form.node.attr("strides") or (1,)) > 1
        wide_in = inputs if form.kind is Kind.GROUPED else self._lanes_in(form, inputs)
        wide_out = lanes(form.layouts[0], self.block)
        return Shape(inputs, outputs, prod(kernel), positions, source, wide_in, wide_out, strided=strided, **sizes)

    def _transposed(self, form: Form) -> tuple[float, float]:
        """A product and the sum of its overlapping columns, against a convolution and the order of its results."""
        weight = form.node.inputs[1]
        assert weight is not None
        tensor = weight.constant_tensor
        assert tensor is not None
        inputs, outputs, *kernel = tensor.dims
        phases = Phases.of(form)
        rows, columns, places = phases.rows, phases.columns, len(phases.places)
        source = self._elements(form.operands[0]) / inputs or pixels(form.extents, outputs) / places
        unrolled = source * outputs * prod(kernel)
        plain = unrolled * inputs / self.rates.plain + 4 * inputs * outputs * prod(kernel) / self.rates.copy
        plain += unrolled * (_COLUMNS_IN_A_ROW if places == 1 else _COLUMNS[unrolled > _NEAR]) + self.rates.start
        _, height, width = self.facts.extents(form.operands[0])
        made = source * (1 + rows.more / nominal(height)) * (1 + columns.more / nominal(width))
        # The kernels work on three positions of a row at a time, or on one.
        long = nominal(width) + columns.more
        made *= -(-long // 3) * 3 / max(long, 1)
        wide_in, count = self._lanes_in(form, inputs), places // len(phases.kernels)
        wide_out = lanes(form.layouts[0] * count, self.block)
        shapes = [Shape(inputs, outputs * count, prod(k), made, source, wide_in, wide_out) for k in phases.kernels]
        blocked = sum(timing.blocked(shape, self.block, self.rates) for shape in shapes)
        moved = made * wide_out * len(shapes)
        if len(shapes) > 1:
            blocked += self._pass_over(moved, moved, 2)[1]
        return plain, blocked + (moved * _IN_ORDER[moved > _NEAR] if places > 1 else 0.0)

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
        layout = form.layouts[0] if form.layouts else self.facts.layout(form.operands[0]) or (self.block,)
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

    def enter(self, value: Value) -> float:
        """Time to reorder a value to blocks; channels come in fours, so others are added first."""
        # Of a convolution's input no more than its number of channels may be known; it comes as it is.
        layout = self.facts.layout(value) or (self.block,)
        return self.reorder(value, (sum(layout),)) * (1 if sum(layout) % 4 == 0 else 2)

    def plain_input(self, form: Form) -> float:
        """What a convolution over few channels costs more when its input comes blocked, and so padded."""
        _, blocked = self.form(form)
        inputs = sum(self.facts.layout(form.operands[0]) or (self.block,))
        return (blocked - self.rates.start) * (self.block / inputs - 1)
