"""An image and one number for each pixel, as spatial attention has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.ir import Node, Value
from graphopt_passes.layout.activations import lanes_behind, range_of
from graphopt_passes.layout.cost import RESHAPES, Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.forms.channelwise import GATED
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.lanes import ZERO
from graphopt_passes.layout.weights import lanes, view


@dataclass(eq=False)
class PixelGate(Form):
    """The gate in every lane of one block, by a 1x1 convolution with ones; it meets all blocks of the image alike.

    Attributes:
        gate: an image of one channel, read in NCHW.
    """

    label = "gate of pixels"

    gate: Value

    def price(self, costs: Costs) -> Price:
        """A pass over the image, one over the spread gate, and two Reshape."""
        plain, blocked = self.passes(costs, 2)
        spread = costs.passes(0, self.elements() / sum(self.gives[0]) * costs.block, 2)[1]
        return plain, blocked + spread + RESHAPES * costs.rates.start

    def build(self, emit: Emitter, group: Group) -> Built:
        """The operator on a view of the blocks; where there is one only, its padding lanes get zeros."""
        entered = emit.enter(self.operands[0])
        layout, block = entered.layout, emit.block
        alone = emit.lanes(layout) == block
        ones = np.ones((block, 1, 1, 1), np.float32)
        if alone:
            ones[layout[0] :] = 0
        spread = emit.op("Conv", emit.now(self.gate), emit.rw.constant(ones))
        emit.state_type(spread, (block,), self.sizes)
        is_first = emit.now(self.operands[0]) is self.node.inputs[0]

        def gated(image: Value) -> Value:
            gate = spread if alone else emit.rw.op("Reshape", spread, view((block,), block))
            return emit.rw.op(self.node.op_type, *((image, gate) if is_first else (gate, image)))

        return [(gated(entered.value), layout)] if alone else emit.on_view(entered, gated)


def pixel_gate(node: Node, known: Known, images: list[Value]) -> PixelGate | None:
    """The form of an operator on an image and one number for each pixel."""
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
        return PixelGate(node, [image], [layout], sizes, bounds, gate)
    return None
