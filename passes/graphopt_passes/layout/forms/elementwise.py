"""Elementwise operators: on one image, on several of one shape, `x * Sigmoid(x)`, and PRelu."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.records import dataclass
from graphopt_passes.layout.activations import activation_of, lanes_behind, range_of
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.emitter import Blocked, Built, Emitter
from graphopt_passes.layout.form import Form, Group, Written
from graphopt_passes.layout.forms.channelwise import channel_gate, per_channel, pixel_gate
from graphopt_passes.layout.known import Known, channel_vector, check_broadcasts, is_number
from graphopt_passes.layout.lanes import mapped

_FUSED_IN_NCHW = frozenset({"Clip", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})


@dataclass(eq=False)
class Elementwise(Form):
    """The operator itself on blocked values."""

    label = "elementwise"

    def __post_init__(self) -> None:
        """A convolution may absorb it, as an activation or as a sum of two images."""
        self.activation = activation_of(self.node)
        self.is_sum = self.node.op in ("Add", "Sum") and len(self.operands) == len(self.node.inputs) == 2

    def price(self, costs: Costs) -> Price:
        plain, blocked = super().price(costs)
        if self.fused == "activation":
            # Convolutions in NCHW apply the common activations, too, in a second pass.
            common = self.node.op in _FUSED_IN_NCHW
            return (self.second_pass(costs) if common else plain), 0.0
        # A sum makes the convolution read another input.
        return plain, 0.5 * (blocked - costs.rates.start) if self.fused == "residual" else blocked

    def build(self, emit: Emitter, group: Group) -> Built:
        node, operands = self.node, entered_alike(emit, self.operands)
        by_current = {emit.now(v): made.value for v, made in zip(self.operands, operands, strict=True)}
        inputs = [by_current.get(v, v) if v is not None else None for v in node.inputs]
        return [(emit.rw.again(node, *inputs), operands[0].layout)]


def entered_alike(emit: Emitter, operands: Sequence[Value]) -> list[Blocked]:
    """All operands blocked, in one layout."""
    first = emit.enter(operands[0])
    return [first, *(emit.enter(value, first.layout) for value in operands[1:])]


def unary(node: Node, known: Known) -> Form:
    """The blocked form of an operator on one image, whose other operands are numbers."""
    x, layout = known.image(node)
    if any(v is not None and not is_number(v) for v in node.inputs[1:]):
        raise Decline
    return Elementwise(node, [x], [layout], known.sizes(x), lanes_behind(node, [known.lanes(x)]))


def combined(node: Node, known: Known) -> Form:
    """The blocked form of an operator of several operands."""
    operands = node.operands
    check_broadcasts(node)
    form: Form | None = _gated(node, known)
    if form is not None:
        return form
    images = [v for v in operands if not is_number(v)]
    layouts = [known.layout(v) for v in images]
    layout = layouts[0] if layouts else None
    if layout is None or None in layouts or any(v.is_const for v in images):
        return per_channel(node, known)
    if len(images) == len(operands) == 2:
        form = channel_gate(node, known, images) or pixel_gate(node, known, images)
        if form is not None:
            return form
    sizes = known.sizes(images[0])
    if any(other != layout for other in layouts) or any(known.sizes(v) != sizes for v in images[1:]):
        raise Decline("the operands of {} are not known to have the same shape", node.result.name)
    lanes = lanes_behind(node, [known.lanes(v) if v in images else range_of(v) for v in operands])
    return Elementwise(node, images, [layout], sizes, lanes)


def _gated(node: Node, known: Known) -> Written | None:
    """The form of a Mul that computes `x * Sigmoid(x)`, if nothing else reads the Sigmoid."""
    if node.op != "Mul":
        return None
    for gate, x in (node.operands, node.operands[::-1]):
        sigmoid = gate.made_by("Sigmoid")
        if sigmoid is None or sigmoid.graph is not node.graph:
            continue
        if gate.one_use and sigmoid.inputs[0] is x:
            layout = known.layout_of_image(x)
            lanes = lanes_behind(node, [known.lanes(x), lanes_behind(sigmoid, [known.lanes(x)])])
            form = Written(
                node, [x], [layout], known.sizes(x), lanes,
                name="silu", make=partial(_silu, x),
            )  # fmt: skip
            form.companion = sigmoid
            return form
    return None


def _silu(x: Value, emit: Emitter) -> Built:
    source, layout, _ = emit.enter(x)
    return [(emit.rw.op("QuickGelu", source, domain="com.microsoft", alpha=1.0), layout)]


def _spelled_out(form: Form, costs: Costs) -> Price:
    """The price; in NCHW it is written out later, in four operators instead of three."""
    plain, blocked = form.passes(costs, 2)
    return 5 * plain, 4 * blocked


def prelu(node: Node, known: Known) -> Form:
    """The blocked form of a PRelu with a constant slope per channel, as `Relu(x) + slope * Min(x, 0)`.

    The second term is a depthwise convolution, the first its residual: together they are faster than the PRelu kernel.
    """
    x, layout = known.image(node)
    slope = node.operand(1)
    if not node.graph.broadcasts("Min"):
        raise Decline
    numbers = channel_vector(slope, sum(layout))
    if numbers is None and slope.is_const and is_number(slope):
        numbers = np.full(sum(layout), slope.array().reshape(-1)[0], np.float32)
    if numbers is None:
        raise Decline("{} is not constant with one number per channel", slope.name)
    if not np.isfinite(numbers).all():
        raise Decline("{} is not finite", slope.name)

    def make(emit: Emitter) -> Built:
        source, layout, _ = emit.enter(x)
        wide = emit.spread(numbers, layout)
        below = emit.rw.op("Min", source, np.array(0, np.float32))
        slope = emit.rw.constant(wide.reshape(-1, 1, 1, 1))
        return [(emit.op("Conv", below, slope, None, emit.rw.op("Relu", source), group=len(wide)), layout)]

    lanes = mapped("Relu", known.lanes(x))
    return Written(
        node, [x], [layout], known.sizes(x), lanes,
        name="prelu", make=make, cost=_spelled_out,
    )  # fmt: skip
