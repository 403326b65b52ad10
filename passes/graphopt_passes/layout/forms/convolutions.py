"""Convolutions: dense, grouped in whole blocks, and depthwise."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor, Value
from graphopt.operators.linear import block_diagonal
from graphopt.operators.window import SETTINGS
from graphopt.records import dataclass
from graphopt_passes.layout import timing, weights
from graphopt_passes.layout.activations import lanes_of_activation
from graphopt_passes.layout.cost import Costs, Price, image
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Convolving, Form, Group
from graphopt_passes.layout.known import FLOAT, Known
from graphopt_passes.layout.lanes import ANYTHING, ZERO, Lanes
from graphopt_passes.layout.timing import ConvolutionSizes
from graphopt_passes.layout.weights import Array, Layout

_KEPT = (*SETTINGS, "activation", "activation_params")


@dataclass(eq=False)
class _Convolution(Convolving):
    """The base of all convolutions.

    Attributes:
        group: number of groups of channels.
        merge: how many groups the blocked form merges into one, with zeros between them.
        is_depthwise: whether each channel is a group of its own.
    """

    is_depthwise: ClassVar[bool] = False

    group: int
    merge: int

    @property
    def weight(self) -> Value:
        return self.node.operand(1)

    @property
    def inputs_per_group(self) -> int:
        """Channels that the kernel reads, after groups are merged."""
        return self.weight.size(1) * self.merge

    def merged(self, array: Array) -> Array:
        """The kernel with groups merged."""
        return block_diagonal(array, self.group, self.merge) if self.merge > 1 else array

    def biased(self, emit: Emitter, group: Group, inputs: list[Value], layout: Layout, *, count: int = 1) -> Built:
        attrs = {name: self.node.attrs.get(name) for name in _KEPT}
        bias = self.node.input(2)
        if bias is not None:
            bias = emit.constant(bias, (layout,), lambda array: weights.vector(array, layout, emit.block))
        return self.convolve(emit, group, [*inputs, bias], layout, count=count, **attrs)

    def lanes_in(self, costs: Costs, inputs: int) -> int:
        """Channels that the blocked form reads, padding included."""
        return weights.lanes(costs.known.layout(self.operands[0]) or (inputs,), costs.block)

    def price(self, costs: Costs) -> Price:
        """Time of multiplications and memory traffic, and in NCHW of the activation that it already has."""
        tensor = self.weight.constant_tensor
        assert tensor is not None
        outputs, per_group, *kernel = tensor.dims
        inputs = per_group * self.group
        rows, columns = image(self.sizes, outputs)
        positions = rows * columns
        shape = ConvolutionSizes(
            inputs, outputs, prod(kernel), rows, positions, costs.elements(self.operands[0]) / inputs or positions,
            self.lanes_in(costs, inputs), weights.lanes(self.gives[0], costs.block), group=self.group, merge=self.merge,
            strided=max(self.node.attr("strides") or (1,)) > 1, depthwise=self.is_depthwise,
        )  # fmt: skip
        activation = self.second_pass(costs) if self.is_active else 0.0
        return timing.plain(shape, costs.rates) + activation, timing.blocked(shape, costs.block, costs.rates)


class Dense(_Convolution):
    """A convolution over all channels; if these are fewer than a block it reads NCHW."""

    label = "conv"
    mixes = True

    def lanes_in(self, costs: Costs, inputs: int) -> int:
        return inputs if self.plain else super().lanes_in(costs, inputs)

    def extra_for_blocks(self, costs: Costs) -> float:
        inputs = sum(costs.layout(self.operands[0]))
        return (self.price(costs)[1] - costs.rates.start) * (costs.block / inputs - 1)

    def build(self, emit: Emitter, group: Group) -> Built:
        x, layout = self.operands[0], self.gives[0]
        found = emit.blocked(x)
        if self.plain and (self.by_plain or found is None or not emit.is_clean(found)):

            def by_outputs(array: Array) -> Array:
                return weights.outputs_blocked(self.merged(array), layout, emit.block)

            made = emit.constant(self.weight, ("Bo", self.merge), by_outputs)
            return self.biased(emit, group, [emit.now(x), made], layout)
        source, inputs, _ = emit.enter_bounded(x, self.inputs_per_group)

        def by_both(array: Array) -> Array:
            return weights.both_blocked(self.merged(array), inputs, layout, emit.block, emit.room)

        made = emit.constant(self.weight, ("BiBo", self.merge, inputs), by_both)
        return self.biased(emit, group, [source, made], layout)


class Grouped(_Convolution):
    """A convolution of groups whose channels are whole blocks, except for the end of the last group."""

    label = "grouped"
    mixes = True

    @property
    def count(self) -> int:
        """Groups of the blocked form."""
        return -(-self.group // self.merge)

    @property
    def title(self) -> str:
        return f"{self.count} groups"

    def build(self, emit: Emitter, group: Group) -> Built:
        entered = emit.enter_bounded(self.operands[0], self.weight.size(1) * self.group, in_one=True)

        def blocked(array: Array) -> Array:
            return weights.grouped_blocked(self.merged(array), emit.block)

        made = emit.constant(self.weight, ("groups", self.merge), blocked)
        return self.biased(emit, group, [entered.value, made], self.gives[0], count=self.count)


class Depthwise(_Convolution):
    """A convolution of each channel alone."""

    label = "depthwise"
    is_depthwise = True

    def build(self, emit: Emitter, group: Group) -> Built:
        source, layout, _ = emit.enter_image(self.operands[0], self.weight.size(0))

        def blocked(array: Array) -> Array:
            return weights.outputs_blocked(array, layout, emit.block)

        made = emit.constant(self.weight, ("depthwise", layout), blocked)
        return self.biased(emit, group, [source, made], layout, count=emit.lanes(layout))


_FOURS = 4
"""The runtime's reorders take channels in multiples of this."""


def image_and_kernel(node: Node, outputs: int) -> tuple[Value, Tensor]:
    """The image and the kernel of a 2-D convolution; kernel and bias, along kernel axis `outputs`, are constant."""
    x, w, b = node.operand(0), node.operand(1), node.input(2)
    tensor = w.constant_tensor
    if tensor is None and w.rank == 4:
        raise Decline("weight {} is not constant", w.name)
    if tensor is None or len(tensor.dims) != 4 or 0 in tensor.dims:
        raise Decline
    if tensor.dtype != FLOAT:
        raise Decline("weight {} is not float32", w.name)
    bias = b.constant_tensor if b is not None else None
    if b is not None and (bias is None or bias.dims != tensor.dims[outputs : outputs + 1]):
        raise Decline("bias {} is not constant", b.name)
    return x, tensor


def convolution(node: Node, known: Known) -> Form:
    """The blocked form of a Conv or FusedConv."""
    x, tensor = image_and_kernel(node, outputs=0)
    outputs, per_group = tensor.dims[:2]
    group = int(node.attr("group", 1))
    layout = known.layout(x) or (None if isinstance(x.dim(1), int) else (per_group * group,))
    if layout is None or sum(layout) != per_group * group or outputs % group:
        raise Decline("the channels of {} do not match its weight", x.name)
    known.assume_image(x, per_group * group, node)
    common: dict[str, Any] = {"node": node, "operands": [x], "sizes": known.sizes(node.result), "group": group}
    depthwise = group > 1 and per_group == 1 and outputs == group
    merge = 1 if depthwise else weights.groups_in_one(group, (per_group, outputs // group), known.block)
    form: Form
    if depthwise and _sums_windows(tensor.array()):
        raise Decline("the convolution of {} replaces a pool that is not blocked", x.name)
    if depthwise:
        form = Depthwise(**common, gives=[layout], lanes=times_zero(known.lanes(x)), merge=1)
        form.usual = outputs % _FOURS == 0
    elif group in (1, merge):
        form = Dense(**common, gives=[(outputs,)], lanes=ZERO, merge=merge)
        form.plain = per_group * group < known.block
        form.usual = group == 1 and (form.plain or per_group % _FOURS == 0)
    elif len(layout) != 1:
        raise Decline("the groups of {} do not fill whole blocks", x.name)
    else:
        form = Grouped(**common, gives=[(outputs,)], lanes=ZERO, merge=merge)
        form.usual = merge == 1
    return _fused(form, known) if node.domain else form


def _sums_windows(weight: Array) -> bool:
    """Whether all taps of a channel are equal: `convert_average_pool_to_conv` made it of a pool better not blocked."""
    taps = weight.reshape(len(weight), -1)
    return taps.shape[1] > 1 and bool((taps == taps[:, :1]).all())


def times_zero(lanes: Lanes) -> Lanes:
    """The padding lanes after a depthwise convolution, whose weights are zero there."""
    return ZERO if lanes.bounded else ANYTHING


def _fused(form: Form, known: Known) -> Form:
    """The form of a FusedConv, with its residual and its activation."""
    residual = form.node.input(3)
    if residual is not None:
        if known.layout(residual) != form.gives[0]:
            raise Decline("{} is not known to have the shape of the convolution", residual.name)
        form.operands.append(residual)
        form.residual = residual
        form.lanes = known.lanes(residual) if form.lanes == ZERO else ANYTHING
    form.is_active = form.node.attr("activation") is not None
    form.lanes = lanes_of_activation(form.node, form.lanes)
    return form
