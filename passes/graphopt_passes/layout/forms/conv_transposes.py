"""Transposed convolutions in blocks: convolutions for all positions within a stride, whose results are interleaved.

A `Transpose` of whole rows of a block moves the positions within the stride into rows and columns.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.phases import Phases
from graphopt.records import dataclass
from graphopt_passes.layout import timing, weights
from graphopt_passes.layout.cost import Costs, Price, nominal, pixels
from graphopt_passes.layout.emitter import Blocked, Built, Emitter
from graphopt_passes.layout.form import Convolving, Group, activated
from graphopt_passes.layout.forms.convolutions import image_and_kernel
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.lanes import ZERO
from graphopt_passes.layout.timing import ConvolutionSizes

_TO_THE_END = np.iinfo(np.int64).max

_COLUMNS, _COLUMNS_IN_A_ROW = (0.2e-3, 1.0e-3), 0.15e-3
"""Microseconds for each product that is added to a result in NCHW: in the cache, out of it, with a stride of one."""

_IN_ORDER = (0.55e-3, 1.25e-3)
"""Microseconds to move an element of a blocked result to its place: in the cache, and out of it."""

_NEAR = 3e5
"""The most elements that stay in the cache."""


@dataclass(eq=False)
class TransposedConvolution(Convolving):
    """A ConvTranspose."""

    label = "transposed"
    mixes = True
    takes_sum = False

    phases: Phases  # the convolutions that it becomes

    @property
    def weight(self) -> Value:
        return self.node.operand(1)

    def price(self, costs: Costs) -> Price:
        """Time of a product and the sums of its columns, and of convolutions and the interleaving of their results."""
        tensor, rates, phases = self.weight.constant_tensor, costs.rates, self.phases
        assert tensor is not None
        inputs, outputs, *kernel = tensor.dims
        rows, columns, places = phases.rows, phases.columns, len(phases.places)
        source = costs.elements(self.operands[0]) / inputs or pixels(self.sizes, outputs) / places
        unrolled = source * outputs * prod(kernel)
        plain = unrolled * inputs / rates.plain + 4 * inputs * outputs * prod(kernel) / rates.pack
        plain += unrolled * (_COLUMNS_IN_A_ROW if places == 1 else _COLUMNS[unrolled > _NEAR]) + rates.start
        _, height, width = costs.known.sizes(self.operands[0])
        made = source * (1 + rows.more / nominal(height)) * (1 + columns.more / nominal(width))
        # The kernels work on three positions of a row at a time, or on one.
        long = max(nominal(width) + columns.more, 1)
        made *= -(-long // 3) * 3 / long
        count = places // len(phases.kernels)
        wide_in = weights.lanes(costs.known.layout(self.operands[0]) or (inputs,), costs.block)
        wide_out = weights.lanes(self.gives[0] * count, costs.block)
        shapes = [
            ConvolutionSizes(inputs, outputs * count, prod(cells), made / long, made, source, wide_in, wide_out)
            for cells in phases.kernels
        ]
        blocked = sum(timing.blocked(shape, costs.block, rates) for shape in shapes)
        moved = made * wide_out * len(shapes)
        if len(shapes) > 1:
            blocked += costs.passes(moved, moved, 2)[1]
        return plain, blocked + (moved * _IN_ORDER[moved > _NEAR] if places > 1 else 0.0)

    def build(self, emit: Emitter, group: Group) -> Built:
        entered = emit.enter_bounded(self.operands[0], self.weight.size(0))
        made = [self._convolution(emit, group, entered, at) for at in range(len(self.phases.kernels))]
        out = made[0] if len(made) == 1 else emit.rw.op("Concat", *made, axis=1)
        return [(self._in_order(emit, out), self.gives[0])]

    def _convolution(self, emit: Emitter, group: Group, entered: Blocked, at: int) -> Value:
        (source, inputs, _), phases, bias = entered, self.phases, self.node.input(2)
        layout = self.gives[0] * (len(phases.places) // len(phases.kernels))

        def blocked(array: np.ndarray) -> np.ndarray:
            return weights.both_blocked(phases.weight(array, at), inputs, layout, emit.block)

        made = emit.constant(self.weight, ("phases", phases, at, inputs), blocked)
        if bias is not None:

            def repeated(array: np.ndarray) -> np.ndarray:
                return weights.vector(np.tile(array, len(layout)), layout, emit.block)

            bias = emit.constant(bias, ("phases", layout), repeated)
        kernel, axes = phases.kernels[at], (phases.rows, phases.columns)
        before = (taps - 1 - axis.first for taps, axis in zip(kernel, axes, strict=True))
        attrs = {"kernel_shape": kernel, "pads": (*before, *(axis.after for axis in axes)), **activated(group)}
        out = emit.op("Conv", source, made, bias, **attrs)
        emit.state_type(out, layout, (self.sizes[0], *phases.positions))
        return out

    def _in_order(self, emit: Emitter, out: Value) -> Value:
        """Interleave the positions within the stride in rows and columns, and cut off the margins."""
        rw, block, phases = emit.rw, emit.block, self.phases
        rows, columns = phases.rows, phases.columns
        cut = [(at, axis.skip, -axis.tail) for at, axis in ((2, rows), (3, columns)) if axis.skip or axis.tail]
        whole = rows.stride == columns.stride == 1
        if whole and not cut:
            return out
        blocks, made = weights.lanes(self.gives[0], block) // block, out

        def sizes(times: tuple[int, int] = (1, 1), less: tuple[int, int] = (0, 0)) -> list[Value | int]:
            changes = zip(phases.positions, times, less, strict=True)
            return [
                size * by - off if size is not None else _open_size(emit, made, at, (by, off))
                for at, (size, by, off) in enumerate(changes, 2)
            ]

        if not whole:
            split = _shaped(emit, out, rows.stride, columns.stride, blocks, *sizes(), block)
            out = rw.op("Transpose", split, perm=(0, 3, 4, 1, 5, 2, 6))
        strides = rows.stride, columns.stride
        if cut:
            out = _cut(emit, _shaped(emit, out, blocks, *sizes(strides), block), cut)
        return _shaped(emit, out, blocks * block, *sizes(strides, (rows.skip + rows.tail, columns.skip + columns.tail)))


def transposed_convolution(node: Node, known: Known) -> TransposedConvolution:
    """The blocked form of a ConvTranspose."""
    x, tensor = image_and_kernel(node, outputs=1)
    inputs, outputs = tensor.dims[:2]
    layout = known.layout(x) or (None if isinstance(x.dim(1), int) else (inputs,))
    if layout is None or sum(layout) != inputs:
        raise Decline("the channels of {} do not match its weight", x.name)
    phases = Phases.of(node, tensor.dims[2:])
    known.assume_image(x, inputs, node)
    source = [size if isinstance(size, int) else None for size in known.sizes(x)[1:]]
    axes, (height, width) = (phases.rows, phases.columns), source
    if any(size is not None and axis.size(size) < 1 for axis, size in zip(axes, source, strict=True)):
        raise Decline("its result is empty")
    phases = replace(phases, height=height, width=width)
    form = TransposedConvolution(node, [x], [(outputs,)], known.sizes(node.result), ZERO, phases)
    form.usual = False
    return form


def _shaped(emit: Emitter, value: Value, *dims: Value | int) -> Value:
    """The value reshaped to its batch and other dims, some of which may be computed."""
    parts = [0, *dims]
    shape: Any = np.array(parts, np.int64) if all(isinstance(dim, int) for dim in parts) else None
    if shape is None:
        lists = [np.array([dim], np.int64) if isinstance(dim, int) else dim for dim in parts]
        shape = emit.rw.op("Concat", *lists, axis=0)
    return emit.rw.op("Reshape", value, shape)


def _open_size(emit: Emitter, value: Value, axis: int, change: tuple[int, int]) -> Value:
    """A dynamic size of a value, times one number and minus another, as a list of one."""
    rw, (times, less) = emit.rw, change
    size = rw.op("Gather", rw.op("Shape", value), np.array([axis], np.int64), axis=0)
    if times != 1:
        size = rw.op("Mul", size, np.array([times], np.int64))
    if less:
        size = rw.op("Sub", size, np.array([less], np.int64))
    return size


def _cut(emit: Emitter, value: Value, cuts: list[tuple[int, int, int]]) -> Value:
    axes, starts, ends = (list(numbers) for numbers in zip(*cuts, strict=True))
    ends = [end or _TO_THE_END for end in ends]
    return emit.rw.op("Slice", value, starts=starts, ends=ends, axes=axes)
