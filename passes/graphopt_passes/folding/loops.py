"""Loops and scans that always take the same few rounds."""

from __future__ import annotations

from graphopt.operators.carried import Carried, Scan
from graphopt_passes.folding.trip_count import rounds_of
from graphopt_passes.folding.unroll import Unrolling


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

    def count(self, loop: Carried, scan: Scan, most: int) -> int:
        return rounds_of(loop, most)


class EliminateScanWithConstLength(Unrolling):
    """Replace `Scan` by copies of its body where the scanned length is fixed and small.

    Each copy takes its elements with `Gather`; results are put together with `Concat`, along the axes and in the
    directions that the node states. The limits are those of `eliminate_loop_with_const_trip_count`. The batched form
    of opset 8 stays.
    """

    opsets = "9-"
    ops = ("Scan",)
    late = True  # all rounds may be computed at once, as soon as the types in the body are known

    def count(self, loop: Carried, scan: Scan, most: int) -> int:
        return scan.length
