"""An image and one number for each pixel, as spatial attention has it."""

from __future__ import annotations

from functools import partial

import numpy as np

from graphopt.ir import Node, Value
from graphopt_passes.layout.activations import lanes_behind, range_of
from graphopt_passes.layout.cost import RESHAPES, Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Written
from graphopt_passes.layout.forms.channelwise import GATED
from graphopt_passes.layout.known import Known, Sizes
from graphopt_passes.layout.lanes import ZERO
from graphopt_passes.layout.weights import lanes, view


def pixel_gate(node: Node, known: Known, images: list[Value]) -> Written | None:
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
        make = partial(_gated, node, image, gate, sizes)
        return Written(
            node, [image], [layout], sizes, bounds,
            name="gate of pixels", make=make, cost=_price,
        )  # fmt: skip
    return None


def _price(form: Form, costs: Costs) -> Price:
    """A pass over the image, one over the spread gate, and two Reshape."""
    plain, blocked = form.passes(costs, 2)
    spread = costs.passes(0, form.elements() / sum(form.gives[0]) * costs.block, 2)[1]
    return plain, blocked + spread + RESHAPES * costs.rates.start


def _gated(node: Node, image: Value, gate: Value, sizes: Sizes, emit: Emitter) -> Built:
    """The gate in every lane of one block, by a 1x1 convolution with ones; it meets all blocks of the image alike.

    Where there is one block only, its padding lanes get zeros.
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
