"""Scans over a dimension of a fixed, small size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import GraphPass, Mismatch, Outcome, Rewriter
from graphopt.rewrite.inline import adopt, constants_of, replace_by
from graphopt_passes.folding.unroll import Results, cannot_stack, most_rounds, nothing, stack, too_many, unroll_all


class EliminateScanWithConstLength(GraphPass):
    """Replace `Scan` by copies of its body where the scanned length is fixed and small.

    Each copy takes its elements with `Gather`; results are put together with `Concat`, along the axes and in the
    directions that the node states. The limits are those of `eliminate_loop_with_const_trip_count`. The batched form
    of opset 8 stays.
    """

    name = "eliminate_scan_with_const_length"
    opsets = "9-"

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Unroll the scans of one graph; those inside of its bodies have had their turn."""
        unroll_all(self.name, "Scan", _unroll, graph, rw)


@dataclass(slots=True)
class _Form:
    """A `Scan` taken apart.

    Attributes:
        states: initial states.
        scanned: what is scanned.
        in_axes: the axis of each scanned input, counted from the front.
        in_reversed: whether it is scanned from its end.
        out_axes: the axis along which each result is stacked.
        out_reversed: whether later results go before.
        length: the number of rounds.
    """

    states: list[Value]
    scanned: list[Value]
    in_axes: list[int]
    in_reversed: list[bool]
    out_axes: list[int]
    out_reversed: list[bool]
    length: int


def _form(node: Node, body: Graph) -> _Form | Mismatch:
    inputs = [value for value in node.inputs if value is not None]
    scans = node.attr("num_scan_inputs", 0)
    count = len(inputs) - scans
    if len(inputs) != len(node.inputs) or scans < 1 or count < 0 or len(body.inputs) != len(inputs):
        return Mismatch("the body does not fit the scan")
    if len(body.outputs) < count or len(node.outputs) > len(body.outputs):
        return Mismatch("the body does not fit the scan")
    scanned, results = inputs[count:], body.outputs[count:]
    ranks = [value.rank for value in scanned]
    out_ranks = [value.rank for value in results]
    in_axes = _normal(node.attr("scan_input_axes"), ranks, 0)
    out_axes = _normal(node.attr("scan_output_axes"), out_ranks, 1)
    if in_axes is None or out_axes is None:
        return Mismatch("the rank of what is scanned or stacked is not known")
    lengths = {v.shape[a] for v, a in zip(scanned, in_axes, strict=True) if v.shape is not None}
    fixed = [length for length in lengths if isinstance(length, int)]
    if len(fixed) != 1 or len(lengths) != 1:
        return Mismatch("the scanned length is not fixed")
    directions = (
        [bool(d) for d in node.attr(name) or (0,) * n]
        for name, n in (("scan_input_directions", scans), ("scan_output_directions", len(results)))
    )
    in_reversed, out_reversed = directions
    if len(in_reversed) != scans or len(out_reversed) != len(results):
        return Mismatch("there are not as many directions as inputs or outputs")
    return _Form(inputs[:count], scanned, in_axes, in_reversed, out_axes, out_reversed, fixed[0])


def _normal(axes: tuple[int, ...] | None, ranks: list[int | None], more: int) -> list[int] | None:
    """Axes counted from the front; without any, the first one of each."""
    if axes is None:
        # Stacking in front needs no rank.
        return [0] * len(ranks) if more or all(rank is not None and rank > 0 for rank in ranks) else None
    found = []
    for axis, rank in zip(axes, ranks, strict=False):
        full = None if rank is None else rank + more
        if axis >= 0 and more and (full is None or axis < full):
            found.append(axis)
        elif full is not None and -full <= axis < full:
            found.append(axis % full)
    return found if len(found) == len(ranks) else None


def _unroll(node: Node, rw: Rewriter) -> Outcome:
    body = node.subgraphs.get("body")
    form = _form(node, body) if body is not None else Mismatch("there is no body")
    if body is None or isinstance(form, Mismatch):
        return form if isinstance(form, Mismatch) else None
    count = len(form.states)
    used = [v is not None and v.uses > 0 for v in node.outputs[count:]]
    collected = [value for value, wanted in zip(body.outputs[count:], used, strict=False) if wanted]
    most = most_rounds(body, len(collected) + len(form.scanned), rw.options.unroll_limit)
    if isinstance(most, Mismatch):
        return most
    if form.length > most:
        return too_many(form.length, most, body)
    for value in (*collected, *form.scanned):
        problem = cannot_stack(value, form.length)
        if problem is not None:
            return problem
    return replace_by(rw, node, _write_out(rw, node, body, form), f"{form.length} rounds")


def _write_out(rw: Rewriter, node: Node, body: Graph, form: _Form) -> Results:
    """The rounds, pending: what stands for final states and collected results."""
    count = len(form.states)
    shared = constants_of(rw, body) if form.length else {}
    positions = [rw.constant(np.array(number, np.int64)) for number in range(form.length)]
    carried: Results = [*form.states]
    rows: list[Results] = []
    for number in range(form.length):
        elements = [
            rw.op("Gather", value, positions[-1 - number if backwards else number], axis=axis)
            for value, axis, backwards in zip(form.scanned, form.in_axes, form.in_reversed, strict=True)
        ]
        outputs = adopt(rw, body, {**shared, **dict(zip(body.inputs, [*carried, *elements], strict=True))})
        carried, row = outputs[:count], outputs[count:]
        rows.append(row)
    results = carried
    for index, old in enumerate(node.outputs[count:]):
        axis, value = form.out_axes[index], body.outputs[count + index]
        column = [row[index] for row in (rows[::-1] if form.out_reversed[index] else rows)]
        if old is None or not old.uses:
            results.append(None)
        elif form.length:
            results.append(stack(rw, node, [v for v in column if v is not None], axis))
        else:
            results.append(nothing(rw, value, axis))
    return results
