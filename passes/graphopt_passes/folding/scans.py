"""Scans over a dimension of a fixed, small size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphopt.rewrite import Decline, Graph, Node, Rewriter, Value
from graphopt_passes.folding.unroll import (
    Rounds,
    Unrolling,
    check_rounds,
    check_stackable,
    most_rounds,
    stack,
    used_results,
)


class EliminateScanWithConstLength(Unrolling):
    """Replace `Scan` by copies of its body where the scanned length is fixed and small.

    Each copy takes its elements with `Gather`; results are put together with `Concat`, along the axes and in the
    directions that the node states. The limits are those of `eliminate_loop_with_const_trip_count`. The batched form
    of opset 8 stays.
    """

    opsets = "9-"
    ops = ("Scan",)

    def rounds(self, node: Node, body: Graph, rw: Rewriter) -> Rounds:
        """The body carries the states and gets an element of each scanned input."""
        inputs = node.operands
        count = len(inputs) - node.attr("num_scan_inputs", 0)
        if not 0 <= count < len(inputs) == len(node.inputs) == len(body.inputs):
            raise Decline("the body does not fit the scan")
        if len(body.outputs) < max(count, len(node.outputs)):
            raise Decline("the body does not fit the scan")
        states, scanned, results = inputs[:count], inputs[count:], body.outputs[count:]
        axes = _axes(node, "scan_input_axes", scanned)
        backwards = _directions(node, "scan_input_directions", len(scanned))
        out_axes = _axes(node, "scan_output_axes", results, stacked=1)
        out_backwards = _directions(node, "scan_output_directions", len(results))
        length = _length(scanned, axes)
        collected = used_results(node, body, count)
        most = most_rounds(body, len(collected) + len(scanned), rw.options.unroll_limit)
        check_rounds(length, most, body)
        for value in (*collected, *scanned):
            check_stackable(value, length)
        positions = [rw.constant(np.array(number, np.int64)) for number in range(length)]

        def elements(number: int) -> Mapping[Value, Value]:
            taken = (
                rw.op("Gather", value, positions[-1 - number if back else number], axis=axis)
                for value, axis, back in zip(scanned, axes, backwards, strict=True)
            )
            return dict(zip(body.inputs[count:], taken, strict=True))

        def join(index: int, values: Sequence[Value]) -> Value:
            return stack(rw, values[::-1] if out_backwards[index] else values, results[index], out_axes[index])

        extra = len(collected) + len(scanned)
        return Rounds(length, dict(zip(body.inputs, states, strict=False)), elements, join, extra=extra)


def _length(scanned: Sequence[Value], axes: Sequence[int]) -> int:
    lengths = {value.dims()[axis] for value, axis in zip(scanned, axes, strict=True)}
    length = lengths.pop()
    if lengths or not isinstance(length, int):
        raise Decline("the scanned length is not fixed")
    return length


def _directions(node: Node, name: str, count: int) -> list[bool]:
    """Whether each input is scanned from its end, or later results of an output go before."""
    directions = [bool(direction) for direction in node.attr(name) or (0,) * count]
    if len(directions) != count:
        raise Decline("there are not as many directions as inputs or outputs")
    return directions


def _axes(node: Node, name: str, values: Sequence[Value], stacked: int = 0) -> list[int]:
    """The axis of each value, from the front; with `stacked` 1 among the axes of the stacked value, one more."""
    axes = node.attr(name) or (0,) * len(values)
    if len(axes) != len(values):
        raise Decline("there are not as many axes as inputs or outputs")
    found = []
    for axis, value in zip(axes, values, strict=True):
        rank = None if value.rank is None else value.rank + stacked
        if (rank is None and not (axis >= 0 and stacked)) or (rank is not None and not -rank <= axis < rank):
            raise Decline("the rank of what is scanned or stacked is not known")
        found.append(axis if rank is None else axis % rank)
    return found
