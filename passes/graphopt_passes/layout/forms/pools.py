"""Pools, of windows and of whole images."""

from __future__ import annotations

from contextlib import suppress
from math import prod

from graphopt.analysis.pool_sizes import axes_that_differ, is_dilated_beyond_padding
from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Pool
from graphopt.operators.window import SETTINGS
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Written, by_element
from graphopt_passes.layout.known import Known, Sizes
from graphopt_passes.layout.lanes import ANYTHING

_KEPT = (*SETTINGS, "ceil_mode", "storage_order", "count_include_pad")

_CELL = {"MaxPool": (0.12e-3, 0.02e-3), "AveragePool": (0.45e-3, 0.03e-3)}
"""Microseconds per window cell, in NCHW and blocked."""


def pooled(node: Node, known: Known) -> Written:
    """The blocked form of a pool of windows."""
    x, layout = known.image(node)
    pool = Pool.of(node)
    if len(pool.kernel) != 2:
        raise Decline
    counted = pool.op == "AveragePool" and pool.ceil and pool.counts_padding
    if counted or is_dilated_beyond_padding(node):
        raise Decline("the windows of {} may extend beyond its padding, where kernels differ", node.result.name)
    sizes, made = known.sizes(x), known.sizes(node.result)
    padded = [before + after for before, after in zip(pool.before, pool.after, strict=True)]
    # Kernels differ in how they count the cells of such windows.
    exceeds = [isinstance(s, int) and r > s + p for s, r, p in zip(sizes[1:], pool.reach, padded, strict=True)]
    if any(exceeds) and not pool.same:
        raise Decline("the window is larger than {}", x.name)
    lanes = known.lanes(x) if pool.op == "MaxPool" else known.lanes(x).averaged()
    attrs = {name: node.attrs.get(name) for name in _KEPT}
    if not any(pool.before + pool.after) and not pool.same:
        # Only a window larger than the image would include anything.
        attrs["count_include_pad"] = None

    return Written(
        node, [x], [layout], made, lanes if _sees_data(pool, sizes, made) else ANYTHING,
        name="pool", cost=by_element(*_CELL[pool.op], count=prod(pool.kernel)),
        make=lambda emit: emit.on_blocks(x, lambda source: emit.op(pool.op, source, **attrs)),
    )  # fmt: skip


def is_planned_otherwise(node: Node) -> bool:
    """Whether the runtime assumes too large a result of a pool when it plans which values share memory.

    Such a model runs by luck, which other values may change: it fails if a larger value is to follow. If only
    `ceil_mode` makes a difference the pool itself becomes blocked, and no run was seen to fail.
    """
    if node.op not in ("AveragePool", "LpPool", "MaxPool"):
        return False
    with suppress(Decline):
        return Pool.of(node).same != "" and bool(axes_that_differ(node, node.operand(0).dims()[2:]))
    return False


def _sees_data(pool: Pool, sizes: Sizes, made: Sizes) -> bool:
    """Whether no window lies entirely in the padding."""
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


def _read_once(form: Form, costs: Costs) -> Price:
    (x,) = form.operands
    elements = costs.elements(x)
    return costs.passes(elements, elements * costs.waste(costs.layout(x)), 2)


def _price_of_row(form: Form, costs: Costs) -> Price:
    """The price; in blocks the row is reordered and flattened by two more operators, in NCHW there is one."""
    plain, blocked = _read_once(form, costs)
    return plain, blocked + 2 * costs.rates.start


def globally_pooled(node: Node, known: Known) -> Written:
    """The blocked form of a pool of whole images."""
    x, layout = known.image(node)
    op = "GlobalMaxPool" if node.op == "GlobalMaxPool" else "GlobalAveragePool"
    lanes = known.lanes(x) if node.op == "GlobalMaxPool" else known.lanes(x).averaged()
    return Written(
        node, [x], [layout], (known.sizes(x)[0], 1, 1), lanes,
        name="global pool", make=lambda emit: emit.on_blocks(x, lambda source: emit.op(op, source)), cost=_read_once,
    )  # fmt: skip


def averaged(node: Node, known: Known) -> Written:
    """The blocked form of a ReduceMean over height and width."""
    if sorted(axis % 4 for axis in node.ints("axes") or ()) != [2, 3]:
        raise Decline
    pool = globally_pooled(node, known)
    if node.attr("keepdims", 1):
        return pool
    (x,) = pool.operands

    def make(emit: Emitter) -> Built:
        source, layout, _ = emit.enter(x)
        mean = emit.op("GlobalAveragePool", source)
        emit.state_type(mean, layout, (None, 1, 1))
        return emit.rw.op("Flatten", emit.leave(mean, layout), axis=1)

    return Written(
        node, [x], [], pool.sizes, pool.lanes,
        name="global row", make=make, cost=_price_of_row,
    )  # fmt: skip


def absent(node: Node, known: Known) -> Form:
    """No form: the runtime has no such operator in blocks."""
    known.image(node)
    raise Decline("there is no blocked {}", node.op)
