"""Pools, of windows and of whole images."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Pool
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.forms.convolutions import WINDOW
from graphopt_passes.layout.known import Known, Sizes
from graphopt_passes.layout.lanes import ANYTHING

_KEPT = (*WINDOW, "ceil_mode", "storage_order", "count_include_pad")

_CELL = {"MaxPool": (0.12e-3, 0.02e-3), "AveragePool": (0.45e-3, 0.03e-3)}
"""Microseconds per window cell, in NCHW and blocked."""


@dataclass(eq=False)
class Pooled(Form):
    """A MaxPool or AveragePool of windows.

    Attributes:
        pool: the operator.
    """

    label = "pool"

    pool: Pool

    def price(self, costs: Costs) -> Price:
        """So much for each element of each window."""
        cells, start = prod(self.pool.kernel) * self.elements(), costs.rates.start
        plain, blocked = _CELL[self.pool.op]
        return cells * plain + start, cells * costs.waste(self.gives[0]) * blocked + start

    def build(self, emit: Emitter, group: Group) -> Built:
        """The same operator on blocks."""
        node, pool = self.node, self.pool
        source, layout, _ = emit.enter(self.operands[0])
        attrs = {name: node.attrs.get(name) for name in _KEPT}
        if not any(pool.before + pool.after) and not pool.same:
            # Nothing is included, but a window that is larger than the image, which the kernels count differently.
            attrs["count_include_pad"] = None
        return [(emit.op(pool.op, source, **attrs), layout)]


def pooled(node: Node, known: Known) -> Pooled:
    """The blocked form of a pool of windows."""
    x, layout = known.image(node)
    pool = Pool.of(node)
    if len(pool.kernel) != 2:
        raise Decline
    if pool.op == "AveragePool" and pool.ceil and pool.counts_padding:
        raise Decline("with ceil_mode the padding that counts depends on the version")
    sizes = known.sizes(x)
    padded = [before + after for before, after in zip(pool.before, pool.after, strict=True)]
    # Kernels count the cells of such windows in their own ways.
    exceeds = [isinstance(s, int) and r > s + p for s, r, p in zip(sizes[1:], pool.reach, padded, strict=True)]
    if any(exceeds) and not pool.same:
        raise Decline("the window is larger than {}", x.name)
    made = known.sizes(node.result)
    lanes = known.lanes(x) if pool.op == "MaxPool" else known.lanes(x).averaged()
    return Pooled(node, [x], [layout], made, lanes if _sees_data(pool, sizes, made) else ANYTHING, pool)


def _sees_data(pool: Pool, sizes: Sizes, made: Sizes) -> bool:
    """Whether no window lies in the padding altogether."""
    for axis, (size, results) in enumerate(zip(sizes[1:], made[1:], strict=True)):
        if pool.dilations[axis] > 1 and not (isinstance(size, int) and pool.dilations[axis] <= size):
            return False
        if not pool.ceil or (pool.strides[axis] <= pool.kernel[axis] and not pool.after[axis]):
            continue
        if not (isinstance(size, int) and isinstance(results, int)):
            return False
        if (results - 1) * pool.strides[axis] - pool.before[axis] >= size:
            return False
    return True


class GlobalPooled(Form):
    """A pool of whole images."""

    label = "global pool"

    def price(self, costs: Costs) -> Price:
        """Everything is read once."""
        elements = costs.elements(self.operands[0])
        return costs.passes(elements, elements * costs.waste(costs.layout(self.operands[0])), 2)

    def build(self, emit: Emitter, group: Group) -> Built:
        source, layout, _ = emit.enter(self.operands[0])
        op = "GlobalMaxPool" if self.node.op == "GlobalMaxPool" else "GlobalAveragePool"
        return [(emit.op(op, source), layout)]


def globally_pooled(node: Node, known: Known) -> GlobalPooled:
    """The blocked form of a pool of whole images."""
    x, layout = known.image(node)
    lanes = known.lanes(x) if node.op == "GlobalMaxPool" else known.lanes(x).averaged()
    return GlobalPooled(node, [x], [layout], (known.sizes(x)[0], 1, 1), lanes)


class GlobalRow(GlobalPooled):
    """The mean of whole images, as a row of numbers."""

    label = "global row"

    def build(self, emit: Emitter, group: Group) -> Built:
        """The pool, in NCHW again, flattened."""
        results = super().build(emit, group)
        assert isinstance(results, list)
        value, layout = results[0]
        emit.state_type(value, layout, (None, 1, 1))
        return emit.rw.op("Flatten", emit.leave(value, layout), axis=1)


def averaged(node: Node, known: Known) -> GlobalPooled:
    """The blocked form of a ReduceMean over height and width."""
    if sorted(axis % 4 for axis in node.ints("axes") or ()) != [2, 3]:
        raise Decline
    form = globally_pooled(node, known)
    if node.attr("keepdims", 1):
        return form
    return GlobalRow(node, form.operands, [], form.sizes, form.lanes)


def absent(node: Node, known: Known) -> Form:
    """No form: the runtime has no such operator in blocks."""
    known.image(node)
    raise Decline("there is no blocked {}", node.op)
