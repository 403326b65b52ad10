"""Images that a Transpose brings from and to channels last: the reorders do that as well."""

from __future__ import annotations

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt_passes.layout.cost import Costs, Price, pixels
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.known import FLOAT, Known
from graphopt_passes.layout.lanes import ZERO


class _Reordered(Form):
    """A form that is a reorder."""

    def price(self, costs: Costs) -> Price:
        """As much as the transpose, but for the padding."""
        layout = self.gives[0] if self.gives else costs.layout(self.operands[0])
        elements = sum(layout) * pixels(self.sizes, sum(layout))
        return costs.passes(elements, elements * costs.waste(layout), 3)


class ToChannelsLast(_Reordered):
    """A ReorderOutput with channels last."""

    label = "to nhwc"

    def build(self, emit: Emitter, group: Group) -> Built:
        """A plain result."""
        x = self.operands[0]
        found = emit.blocked(x)
        if found is None or len(found.layout) != 1:
            raise Decline("{} is not blocked", x.name)
        return emit.op("ReorderOutput", found.value, channels=found.layout[0], channels_last=1)


class FromChannelsLast(_Reordered):
    """A ReorderInput with channels last."""

    label = "from nhwc"

    def build(self, emit: Emitter, group: Group) -> Built:
        """What the Transpose reads, in blocks."""
        return [(emit.op("ReorderInput", self.node.inputs[0], channels_last=1), self.gives[0])]


def transposed(node: Node, known: Known) -> Form:
    """The blocked form of a Transpose."""
    x, perm = node.operand(0), node.attr("perm")
    if perm == (0, 2, 3, 1):
        x, layout = known.image(node)
        if len(layout) != 1:
            raise Decline("channels of {} lie apart", x.name)
        return ToChannelsLast(node, [x], [], known.sizes(x), ZERO)
    shape = x.shape
    if perm != (0, 3, 1, 2) or x.dtype != FLOAT or shape is None:
        raise Decline
    channels = shape[3]
    if not isinstance(channels, int) or channels % 4 or not channels:
        raise Decline
    return FromChannelsLast(node, [], [(channels,)], known.sizes(node.result), ZERO)
