"""Loops that always take the same few rounds."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import GraphPass, Mismatch, Outcome, Rewriter
from graphopt.rewrite.inline import adopt, constants_of, replace_by
from graphopt_passes.folding.rounds import rounds_of, scalar_or_vector
from graphopt_passes.folding.unroll import Results, cannot_stack, most_rounds, nothing, stack, unroll_all


class EliminateLoopWithConstTripCount(GraphPass):
    """Replace `Loop` by copies of its body where the number of rounds is known and small.

    The number is known where the trip count is constant and the condition is constant, passed on, or computed from
    the counter and constant states; with a condition that is false, or no rounds, the initial states stand for the
    final ones. The copies of one loop make at most `unroll_limit` nodes, and constants are shared by them. A loop
    with random or unknown operators stays, and so does one with another loop inside, unless it has a single round:
    inner loops come first, and copies of those that are left would multiply. The copies run 1.3 to 2.1 times faster
    than the loop, the more so the more rounds there are; a session of 400 rounds starts up to 70 ms later
    (`python -m benchmarks unrolling`).
    """

    name = "eliminate_loop_with_const_trip_count"
    peers: ClassVar[dict[str, str]] = {"onnxsim": "eliminate_loop_with_const_trip_count"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Unroll the loops of one graph; those inside of its bodies have had their turn."""
        unroll_all(self.name, "Loop", _unroll, graph, rw)


def _unroll(node: Node, rw: Rewriter) -> Outcome:
    body = node.subgraphs.get("body")
    count = len(node.inputs) - 2
    if body is None or count < 0 or len(body.inputs) != count + 2 or not count < len(body.outputs):
        return Mismatch("the body does not fit the loop")
    states = [value for value in node.inputs[2:] if value is not None]
    if len(states) != count:
        return Mismatch("an initial state is left out")
    used = [v is not None and v.uses > 0 for v in node.outputs[count:]]
    collected = [value for value, wanted in zip(body.outputs[1 + count :], used, strict=False) if wanted]
    most = most_rounds(body, len(collected), rw.options.unroll_limit)
    rounds = most if isinstance(most, Mismatch) else rounds_of(node, body, most)
    if isinstance(rounds, Mismatch):
        return rounds
    problem = next((p for value in collected if (p := cannot_stack(value, rounds)) is not None), None)
    if problem is not None:
        return problem
    return replace_by(rw, node, _write_out(rw, node, body, states, rounds), f"{rounds} rounds")


def _write_out(rw: Rewriter, node: Node, body: Graph, states: list[Value], rounds: int) -> Results:
    """The rounds, pending: what stands for final states and collected results."""
    count = len(states)
    shared = constants_of(rw, body) if rounds else {}
    carried: Results = [rw.constant(scalar_or_vector(body.inputs[1], True)), *states]
    rows: list[Results] = []
    for number in range(rounds):
        counter = rw.constant(scalar_or_vector(body.inputs[0], number))
        given = {**shared, body.inputs[0]: counter, **dict(zip(body.inputs[1:], carried, strict=True))}
        outputs = adopt(rw, body, given)
        carried = outputs[: 1 + count]
        rows.append(outputs[1 + count :])
    results = carried[1:]
    for index, old in enumerate(node.outputs[count:]):
        if old is None or not old.uses:
            results.append(None)
        elif rounds:
            column = [value for row in rows if (value := row[index]) is not None]
            results.append(stack(rw, node, column, 0))
        else:
            results.append(nothing(rw, body.outputs[1 + count + index], 0))
    return results
