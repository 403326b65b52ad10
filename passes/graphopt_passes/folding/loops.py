"""Loops and scans that always take the same few rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphopt.operators.carried import Scan
from graphopt.rewrite import Decline, Graph, Node, Rewriter, Value
from graphopt_passes.folding import unroll
from graphopt_passes.folding.trip_count import rounds_of, scalar_or_vector
from graphopt_passes.folding.unroll import Rounds, Unrolling


class EliminateLoopWithConstTripCount(Unrolling):
    """Replace `Loop` by copies of its body where the number of rounds is known and small.

    The number is known where the trip count is constant and the condition is constant, passed on, or computed from
    the counter and constant states; with no rounds the initial states stand for the final ones. The copies of one loop
    make at most `unroll_limit` nodes, and share constants. A loop with random or unknown operators stays, and so does
    one of several rounds with another loop inside: inner loops come first, and what is left of them would multiply.

    A round of a loop takes about 0.5 us beside its body, a node more takes a session about 30 us to start (`python -m
    benchmarks unrolling`): copies that are more nodes, and would be repaid only after more than `unroll_runs` runs
    (1000), are not made. Nodes that follow from the counter and constants alone do not count, since they are folded. A
    body of up to 16 nodes pays at any number of rounds. For a runtime that has no loops, set `unroll_runs` higher.
    """

    ops = ("Loop",)
    peers = {"onnxsim": "eliminate_loop_with_const_trip_count"}

    def rounds(self, node: Node, body: Graph, rw: Rewriter) -> Rounds:
        """The body gets the counter, and carries its condition before the states, last of no use."""
        states = [value for value in node.inputs[2:] if value]
        fits = max(len(node.inputs) - 2, len(node.outputs)) < len(body.outputs)
        if not fits or len(body.inputs) != len(node.inputs):
            raise Decline("the body does not fit the loop")
        if len(states) != len(node.inputs) - 2:
            raise Decline("an initial state is left out")
        counter, *carried = body.inputs
        collected = unroll.used_results(node, body, len(carried), hidden=1)
        count = rounds_of(node, body, unroll.most_rounds(body, len(collected), rw.options.unroll_limit))
        for value in collected:
            unroll.check_stackable(value, count)
        results = body.outputs[len(carried) :]
        return Rounds(
            count,
            dict(zip(carried, (rw.constant(scalar_or_vector(carried[0], True)), *states), strict=True)),
            lambda number: {counter: rw.constant(scalar_or_vector(counter, number))},
            lambda index, values: unroll.stack(rw, values, results[index], 0),
            hidden=1,
            known=(counter,),
            extra=len(collected),
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
        scan = Scan.of(node, body)
        count, length = len(scan.states), scan.length
        collected = unroll.used_results(node, body, count)
        extra = len(collected) + len(scan.scanned)
        unroll.check_rounds(length, unroll.most_rounds(body, extra, rw.options.unroll_limit), body)
        for value in (*collected, *scan.scanned):
            unroll.check_stackable(value, length)
        positions = [rw.constant(np.array(number, np.int64)) for number in range(length)]

        def elements(number: int) -> Mapping[Value, Value]:
            taken = (
                rw.op("Gather", value, positions[-1 - number if back else number], axis=axis)
                for value, axis, back in zip(scan.scanned, scan.axes, scan.backwards, strict=True)
            )
            return dict(zip(body.inputs[count:], taken, strict=True))

        def join(index: int, values: Sequence[Value]) -> Value:
            ordered = values[::-1] if scan.out_backwards[index] else values
            return unroll.stack(rw, ordered, scan.results[index], scan.out_axes[index])

        return Rounds(length, dict(zip(body.inputs, scan.states, strict=False)), elements, join, extra=extra)
