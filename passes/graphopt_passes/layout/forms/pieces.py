"""Channels that are joined and divided."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Slice
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.forms.spatial import cropped, cut_axes
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.weights import Layout, canonical, divided


class _Moved(Form):
    """A form that moves what it reads."""

    def price(self, costs: Costs) -> Price:
        """Everything is read and written once."""
        elements = sum(costs.elements(value) for value in self.operands)
        return costs.passes(elements, elements * costs.waste(self.gives[0]), 2)


class Joined(_Moved):
    """A Concat of channels, of any pieces."""

    label = "concat"

    def build(self, emit: Emitter, group: Group) -> Built:
        """Whole blocks one behind the other."""
        found = [emit.enter(value) for value in self.operands]
        layout = canonical([channels for each in found for channels in each.layout], emit.block)
        return [(emit.rw.op("Concat", *(each.value for each in found), axis=1), layout)]


def joined(node: Node, known: Known) -> Joined:
    """The blocked form of a Concat."""
    inputs = node.operands
    layouts = [layout for layout in map(known.layout, inputs) if layout is not None]
    if node.attr("axis") not in (1, -3) or len(layouts) < len(inputs):
        raise Decline
    segments = canonical([channels for layout in layouts for channels in layout], known.block)
    return Joined(node, inputs, [segments], known.sizes(node.result), reduce(or_, map(known.lanes, inputs)))


@dataclass(eq=False)
class Divided(_Moved):
    """A Split of channels at block boundaries.

    Attributes:
        takes: the layout that the operand must have.
    """

    label = "split"

    takes: Layout

    def build(self, emit: Emitter, group: Group) -> Built:
        """The same of whole blocks."""
        source = emit.enter(self.operands[0], self.takes).value
        sizes = tuple(map(emit.lanes, self.gives))
        made = emit.rw.outputs(len(sizes), "Split", source, axis=1, split=sizes)
        return list(zip(made, self.gives, strict=True))


def split(node: Node, known: Known) -> Divided:
    """The blocked form of a Split."""
    x, layout = known.image(node)
    if node.attr("axis", 0) not in (1, -3) or None in node.outputs:
        raise Decline
    total, count = sum(layout), len(node.outputs)
    each = -(-total // count)
    sizes = node.ints("split") or [min(each, total - each * at) for at in range(count)]
    if sum(sizes) != total or min(sizes) < 1:
        raise Decline("{} is not split at known channels", x.name)
    pieces = divided(layout, sizes, known.block)
    if pieces is None:
        raise Decline("{} is not split at block boundaries", x.name)
    return Divided(node, [x], pieces, known.sizes(x), known.lanes(x), layout)


@dataclass(eq=False)
class Piece(_Moved):
    """A Slice of channels at block boundaries.

    Attributes:
        takes: the layout that the operand must have.
        before: the layout of what is left out before it.
    """

    label = "slice"

    takes: Layout
    before: Layout

    def build(self, emit: Emitter, group: Group) -> Built:
        """The same of whole blocks."""
        source = emit.enter(self.operands[0], self.takes).value
        start, layout = emit.lanes(self.before), self.gives[0]
        end = start + emit.lanes(layout)
        return [(emit.rw.op("Slice", source, starts=(start,), ends=(end,), axes=(1,)), layout)]


def sliced(node: Node, known: Known) -> Form:
    """The blocked form of a Slice."""
    x, layout = known.image(node)
    if cut_axes(node) != [1]:
        return cropped(node, known)
    cut, total = Slice.of(node).along(1), sum(layout)
    taken = cut.positions(total)
    if cut.step != 1:
        raise Decline("{} is not sliced at known channels", x.name)
    sizes = taken.start, len(taken), total - taken.stop
    pieces = divided(layout, sizes, known.block) if taken else None
    if pieces is None:
        raise Decline("{} is not sliced at block boundaries", x.name)
    return Piece(node, [x], pieces[1:2], known.sizes(x), known.lanes(x), layout, pieces[0])
