"""Transposes of images from and to channels last, which reorders can do as well."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators.transpose import FIRST, LAST
from graphopt_passes.layout.cost import Costs, Price, pixels
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Written
from graphopt_passes.layout.known import FLOAT, Known
from graphopt_passes.layout.lanes import ZERO


def _as_transpose(form: Form, costs: Costs) -> Price:
    """The price of the transpose, in blocks with padding."""
    layout = form.gives[0] if form.gives else costs.layout(form.operands[0])
    elements = sum(layout) * pixels(form.sizes, sum(layout))
    return costs.passes(elements, elements * costs.waste(layout), 3)


def transposed(node: Node, known: Known) -> Written:
    """The blocked form of a Transpose."""
    x, perm = node.operand(0), node.attr("perm")
    if perm == LAST:
        if len(known.image(node)[1]) != 1:
            raise Decline("the channels of {} are not contiguous", x.name)

        def leave(emit: Emitter) -> Built:
            found = emit.blocked(x)
            if found is None or len(found.layout) != 1:
                raise Decline("{} is not blocked", x.name)
            return emit.op("ReorderOutput", found.value, channels=found.layout[0], channels_last=1)

        return Written(
            node, [x], [], known.sizes(x), ZERO,
            name="to nhwc", make=leave, cost=_as_transpose,
        )  # fmt: skip
    channels = x.dim(3)
    if perm != FIRST or x.dtype != FLOAT:
        raise Decline
    if not isinstance(channels, int) or channels % 4 or not channels:
        raise Decline

    def enter(emit: Emitter) -> Built:
        return [(emit.op("ReorderInput", node.inputs[0], channels_last=1), (channels,))]

    return Written(
        node, [], [(channels,)], known.sizes(node.result), ZERO,
        name="from nhwc", make=enter, cost=_as_transpose,
    )  # fmt: skip
