"""An image and one number per channel, or per pixel: constants, and gates computed at run time."""

from __future__ import annotations

from functools import partial

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.records import dataclass
from graphopt_passes.layout.activations import lanes_behind, range_of
from graphopt_passes.layout.cost import RESHAPES, Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Convolving, Form, Group, Written
from graphopt_passes.layout.forms.convolutions import times_zero
from graphopt_passes.layout.known import Known, Sizes, channel_vector
from graphopt_passes.layout.lanes import ZERO
from graphopt_passes.layout.weights import Layout, lanes, view

GATED = frozenset({"Add", "Max", "Min", "Mul", "Sub"})
"""Operators on an image and a gate."""


@dataclass(eq=False)
class ChannelAffine(Convolving):
    """A scale and possibly a shift per channel: a depthwise 1x1 convolution."""

    label = "1x1 depthwise"

    scale: np.ndarray
    shift: np.ndarray | None

    def build(self, emit: Emitter, group: Group) -> Built:
        source, layout, _ = emit.enter(self.operands[0])
        wide = emit.spread(self.scale, layout)
        inputs = [source, emit.rw.constant(wide.reshape(-1, 1, 1, 1))]
        if self.shift is not None:
            inputs.append(emit.rw.constant(emit.spread(self.shift, layout)))
        return self.convolve(emit, group, inputs, layout, count=len(wide))


def per_channel(node: Node, known: Known) -> ChannelAffine:
    """The form of a Mul, Add, Sub or Div by one constant per channel."""
    if node.op not in ("Mul", "Add", "Sub", "Div"):
        raise Decline
    for index, (image, other) in enumerate((node.operands, node.operands[::-1])):
        layout = known.layout(image)
        if layout is None or (index == 1 and node.op in ("Sub", "Div")):
            continue
        numbers = channel_vector(other, sum(layout))
        if numbers is None:
            continue
        if node.op in ("Add", "Sub"):
            shift = numbers if node.op == "Add" else -numbers
            return _affine(node, known, (image, layout), np.ones_like(numbers), shift)
        with np.errstate(all="ignore"):  # numbers that are not finite are declined
            scale = numbers if node.op == "Mul" else (1 / numbers.astype(np.float64)).astype(np.float32)
        return _affine(node, known, (image, layout), scale, None)
    raise Decline


def batch_normalization(node: Node, known: Known) -> ChannelAffine:
    """The form of a BatchNormalization with constant statistics."""
    x, layout = known.image(node)
    arrays = [v.const() if v is not None else None for v in node.inputs[1:5]]
    name = node.result.name
    if len(arrays) < 4 or any(a is None or a.dtype != np.float32 or a.size != sum(layout) for a in arrays):
        raise Decline("statistics of {} are not constant", name)
    if node.attr("training_mode", 0) or any(v is not None and v.uses for v in node.outputs[1:]):
        raise Decline("{} is in training mode", name)
    gamma, beta, mean, variance = (a.astype(np.float64) for a in arrays if a is not None)
    with np.errstate(all="ignore"):  # numbers that are not finite are declined
        scale = gamma / np.sqrt(variance + float(node.attr("epsilon", 1e-5)))
        shift = (beta - mean * scale).astype(np.float32)
        return _affine(node, known, (x, layout), scale.astype(np.float32), shift)


def _affine(
    node: Node, known: Known, image: tuple[Value, Layout], scale: np.ndarray, shift: np.ndarray | None
) -> ChannelAffine:
    x, layout = image
    if not np.isfinite(scale).all():
        raise Decline("the factors of {} are not finite", node.result.name)
    return ChannelAffine(node, [x], [layout], known.sizes(x), times_zero(known.lanes(x)), scale, shift)


class Gate(Convolving):
    """One gate for all images of a batch, as weight or bias of a depthwise convolution."""

    @property
    def title(self) -> str:
        return "gate as weight" if self.node.op == "Mul" else "gate as bias"

    def build(self, emit: Emitter, group: Group) -> Built:
        """The gate is blocked, too; its numbers are in lane order."""
        image, layout, _ = emit.enter(self.operands[0])
        gate = emit.enter(self.operands[1], layout).value
        rw, width = emit.rw, emit.lanes(layout)
        if self.node.op == "Mul":
            inputs = [image, rw.op("Reshape", gate, np.array([width, 1, 1, 1], np.int64))]
        else:
            added = rw.op("Neg", gate) if self.node.op == "Sub" else gate
            bias = rw.op("Reshape", added, np.array([width], np.int64))
            inputs = [image, rw.constant(np.ones((width, 1, 1, 1), np.float32)), bias]
        return self.convolve(emit, group, inputs, layout, count=width)


def _spread_gate(node: Node, image: Value, gate: Value, sizes: Sizes, emit: Emitter) -> Built:
    """The operator on an image and a gate for each image of the batch, upsampled to its size."""
    x, layout, _ = emit.enter(image)
    numbers = emit.enter(gate, layout).value
    spread = emit.op("Upsample", numbers, scales=(1, 1, *sizes[1:]), mode="nearest")
    is_first = emit.now(image) is node.inputs[0]
    return [(emit.rw.op(node.op_type, *((x, spread) if is_first else (spread, x))), layout)]


def channel_gate(node: Node, known: Known, images: list[Value]) -> Form | None:
    """The form of an operator on an image and one number per channel."""
    if node.op not in GATED or known.layout(images[0]) != known.layout(images[1]):
        return None
    sizes = [known.sizes(v) for v in images]
    gates = [i for i in (0, 1) if sizes[i][1:] == (1, 1) and sizes[1 - i][1:] != (1, 1)]
    if not gates:
        return None
    gate, image = images[gates[0]], images[1 - gates[0]]
    batch, height, width = extents = known.sizes(image)
    layout = known.layout(image)
    assert layout is not None
    common = node, [image, gate], [layout], extents, lanes_behind(node, [known.lanes(v) for v in images])
    own = known.sizes(gate)[0]
    if own == 1 and (node.op in ("Mul", "Add") or (node.op == "Sub" and gates == [1])):
        return Gate(*common)
    if own == batch and isinstance(height, int) and isinstance(width, int):
        return Written(*common, name="gate spread out", make=partial(_spread_gate, node, image, gate, extents))
    raise Decline("batch and size of {} are dynamic, so its gate stays in NCHW", image.name)


def pixel_gate(node: Node, known: Known, images: list[Value]) -> Written | None:
    """The form of an operator on an image and one number per pixel."""
    if node.op not in GATED:
        return None
    for image, gate in (images, images[::-1]):
        layout = known.layout(image)
        if known.layout(gate) != (1,) or layout is None or sum(layout) == 1:
            continue
        sizes, own = known.sizes(image), known.sizes(gate)
        if own[1:] != sizes[1:] or own[0] not in (1, sizes[0]):
            return None
        alone = lanes(layout, known.block) == known.block
        held = known.lanes(image), ZERO if alone else range_of(gate)
        bounds = lanes_behind(node, held if image is node.inputs[0] else held[::-1])
        make = partial(_gated, node, image, gate, sizes)
        return Written(
            node, [image], [layout], sizes, bounds,
            name="gate of pixels", make=make, cost=_price,
        )  # fmt: skip
    return None


def _price(form: Form, costs: Costs) -> Price:
    """The price of a pass over the image, one over the spread gate, and two Reshape."""
    plain, blocked = form.passes(costs, 2)
    spread = costs.passes(0, form.elements() / sum(form.gives[0]) * costs.block, 2)[1]
    return plain, blocked + spread + RESHAPES * costs.rates.start


def _gated(node: Node, image: Value, gate: Value, sizes: Sizes, emit: Emitter) -> Built:
    """A 1x1 convolution with ones copies the gate to every lane of one block, which broadcasts to all blocks.

    If there is only one block, its padding lanes get zeros.
    """
    source, layout, _ = emit.enter(image)
    block, rw, is_first = emit.block, emit.rw, emit.now(image) is node.inputs[0]
    alone = emit.lanes(layout) == block
    ones = np.ones((block, 1, 1, 1), np.float32)
    if alone:
        ones[layout[0] :] = 0
    spread = emit.op("Conv", emit.now(gate), rw.constant(ones))
    emit.state_type(spread, (block,), sizes)

    def gated(source: Value) -> Value:
        numbers = spread if alone else rw.op("Reshape", spread, view((block,), block))
        return rw.op(node.op_type, *((source, numbers) if is_first else (numbers, source)))

    return [(gated(source), layout)] if alone else emit.on_view(image, gated)
