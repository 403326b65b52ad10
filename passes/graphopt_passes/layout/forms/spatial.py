"""Padding and cutting images along batch, height and width."""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Pad
from graphopt_passes.layout.cost import RESHAPES, Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.lanes import number

_AXES = (0, 2, 3)
"""Those that a blocked value has in the places where NCHW has them, also as the view has them."""


class _OnView(Form):
    """A form whose operator works on a view of the blocks."""

    def price(self, costs: Costs) -> Price:
        """A pass, and two Reshape."""
        plain, blocked = self.passes(costs, 2)
        return plain, blocked + RESHAPES * costs.rates.start


@dataclass(eq=False)
class Padded(_OnView):
    """A Pad that adds no channels.

    Attributes:
        pad: the operator.
    """

    label = "pad"

    pad: Pad

    def build(self, emit: Emitter, group: Group) -> Built:
        """The same pads, and none within the blocks."""
        pads, fill = (*self.pad.before, 0, *self.pad.after, 0), self.pad.fill or None

        def padded(split: Value) -> Value:
            return emit.rw.op("Pad", split, pads=pads, constant_value=fill, mode=self.node.attrs.get("mode"))

        return emit.on_view(emit.enter(self.operands[0]), padded)


def padded(node: Node, known: Known) -> Padded:
    """The blocked form of a Pad."""
    x, layout = known.image(node)
    pad = Pad.of(node)
    if len(pad.before) != 4 or len(pad.after) != 4:
        raise Decline
    if pad.before[1] or pad.after[1]:
        raise Decline("channels are added to {}", x.name)
    filler = pad.number if pad.mode == "constant" else 0.0
    return Padded(node, [x], [layout], known.sizes(node.result), known.lanes(x) | number(filler), pad)


@dataclass(eq=False)
class Cropped(_OnView):
    """A Slice that leaves the channels alone; its bounds need not be constant.

    Attributes:
        axes: those that are cut.
    """

    label = "crop"

    axes: list[int]

    def build(self, emit: Emitter, group: Group) -> Built:
        """The same cuts."""
        node = self.node
        starts, ends = (node.input(at) or node.attrs[name] for at, name in ((1, "starts"), (2, "ends")))

        def cut(split: Value) -> Value:
            return emit.rw.op("Slice", split, starts=starts, ends=ends, axes=self.axes, steps=node.input(4))

        return emit.on_view(emit.enter(self.operands[0]), cut)


def cropped(node: Node, known: Known) -> Cropped:
    """The blocked form of a Slice of other axes than the channels."""
    x, layout = known.image(node)
    axes = cut_axes(node)
    if any(axis not in _AXES for axis in axes):
        raise Decline("{} is cut along channels and others at once", x.name)
    return Cropped(node, [x], [layout], known.sizes(node.result), known.lanes(x), axes)


def cut_axes(node: Node) -> list[int]:
    """The constant axes along which a Slice cuts an image, counted from the first."""
    axes = node.ints("axes")
    if axes is None:
        starts = node.input(1)
        axes = tuple(range(starts.size(0) if starts is not None else len(node.ints("starts") or ())))
    if not axes or not all(-4 <= axis < 4 for axis in axes):
        raise Decline
    return [axis % 4 for axis in axes]
