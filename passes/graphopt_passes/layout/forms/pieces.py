"""Concatenation, splitting and slicing of channels."""

from __future__ import annotations

from functools import reduce
from operator import or_

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Slice
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Written
from graphopt_passes.layout.forms.spatial import cropped, cut_axes
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.weights import canonical, divided


def _moved(form: Form, costs: Costs) -> Price:
    elements = sum(costs.elements(value) for value in form.operands)
    return costs.passes(elements, elements * costs.waste(form.gives[0]), 2)


def joined(node: Node, known: Known) -> Written:
    """The blocked form of a Concat of channels, with pieces of any size."""
    inputs = node.operands
    layouts = [layout for layout in map(known.layout, inputs) if layout is not None]
    if node.attr("axis") not in (1, -3) or len(layouts) < len(inputs):
        raise Decline
    segments = canonical([channels for layout in layouts for channels in layout], known.block)

    def make(emit: Emitter) -> Built:
        found = [emit.enter(value) for value in inputs]
        layout = canonical([channels for each in found for channels in each.layout], emit.block)
        return [(emit.rw.op("Concat", *(each.value for each in found), axis=1), layout)]

    lanes = reduce(or_, map(known.lanes, inputs))
    return Written(
        node, inputs, [segments], known.sizes(node.result), lanes,
        name="concat", make=make, cost=_moved,
    )  # fmt: skip


def split(node: Node, known: Known) -> Written:
    """The blocked form of a Split of channels at block boundaries."""
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

    def make(emit: Emitter) -> Built:
        source = emit.enter(x, layout).value
        made = emit.rw.outputs(count, "Split", source, axis=1, split=tuple(map(emit.lanes, pieces)))
        return list(zip(made, pieces, strict=True))

    return Written(
        node, [x], pieces, known.sizes(x), known.lanes(x),
        name="split", make=make, cost=_moved,
    )  # fmt: skip


def sliced(node: Node, known: Known) -> Written:
    """The blocked form of a Slice: of channels at block boundaries, or of other axes."""
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
    before, piece, _ = pieces

    def make(emit: Emitter) -> Built:
        source, start = emit.enter(x, layout).value, emit.lanes(before)
        end = start + emit.lanes(piece)
        return [(emit.rw.op("Slice", source, starts=(start,), ends=(end,), axes=(1,)), piece)]

    return Written(
        node, [x], [piece], known.sizes(x), known.lanes(x),
        name="slice", make=make, cost=_moved,
    )  # fmt: skip
