"""Loops that always take the same few rounds."""

from __future__ import annotations

from graphopt.rewrite import Decline, Graph, Node, Rewriter
from graphopt_passes.folding.trip_count import rounds_of, scalar_or_vector
from graphopt_passes.folding.unroll import Rounds, Unrolling, check_stackable, most_rounds, stack, used_results


class EliminateLoopWithConstTripCount(Unrolling):
    """Replace `Loop` by copies of its body where the number of rounds is known and small.

    The number is known where the trip count is constant and the condition is constant, passed on, or computed from
    the counter and constant states; with a condition that is false, or no rounds, the initial states stand for the
    final ones. The copies of one loop make at most `unroll_limit` nodes, and constants are shared by them. A loop
    with random or unknown operators stays, and so does one with another loop inside, unless it has a single round:
    inner loops come first, and copies of those that are left would multiply.

    It happens only where it pays. A round of a loop takes about 0.5 us beside its body, a node more takes a session
    about 30 us to start (`python -m benchmarks unrolling`): copies that would be repaid only after more than
    `unroll_runs` runs (1000) are not made, unless there are no more nodes than before. Nodes that follow from the
    counter and constants alone do not count, since they are folded. A body of up to 16 nodes pays at any number of
    rounds. For a runtime that has no loops, set `unroll_runs` higher.
    """

    ops = ("Loop",)
    peers = {"onnxsim": "eliminate_loop_with_const_trip_count"}

    def rounds(self, node: Node, body: Graph, rw: Rewriter) -> Rounds:
        """The body gets the counter, and carries its condition before the states; the last condition has no use."""
        states = [value for value in node.inputs[2:] if value is not None]
        fits = max(len(node.inputs) - 2, len(node.outputs)) < len(body.outputs)
        if not fits or len(body.inputs) != len(node.inputs):
            raise Decline("the body does not fit the loop")
        if len(states) != len(node.inputs) - 2:
            raise Decline("an initial state is left out")
        counter, *carried = body.inputs
        collected = used_results(node, body, len(carried), hidden=1)
        count = rounds_of(node, body, most_rounds(body, len(collected), rw.options.unroll_limit))
        for value in collected:
            check_stackable(value, count)
        results = body.outputs[len(carried) :]
        return Rounds(
            count,
            dict(zip(carried, (rw.constant(scalar_or_vector(carried[0], True)), *states), strict=True)),
            lambda number: {counter: rw.constant(scalar_or_vector(counter, number))},
            lambda index, values: stack(rw, values, results[index], 0),
            hidden=1,
            known=(counter,),
            extra=len(collected),
        )
