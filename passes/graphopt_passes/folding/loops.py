"""Unrolling of loops and scans with a small, fixed number of iterations."""

from __future__ import annotations

from graphopt.operators.carried import Carried, Scan
from graphopt_passes.folding.trip_count import rounds_of
from graphopt_passes.folding.unroll import Unrolling


class EliminateLoopWithConstTripCount(Unrolling):
    """Replace a `Loop` whose number of iterations is known and small with copies of its body.

    The number is known if the trip count is constant and the condition is constant, passed on, or computed from the
    counter and constant states; with no iterations, the initial states are the final ones. The copies of a loop have at
    most `unroll_limit` nodes, and share constants. A loop with random or unknown operators stays, as does one of
    several iterations that contains another loop: inner loops are unrolled first, and copies would multiply the rest.

    An iteration costs about 0.5 us besides its body, and an additional node about 30 us at session start (`python -m
    benchmarks unrolling`): if copies add nodes that are repaid only after more than `unroll_runs` runs (1000), the loop
    stays. Nodes that depend on the counter and constants only do not count, since they are folded. A body of up to 16
    nodes pays for any number of iterations. For a runtime without loops, set `unroll_runs` higher.
    """

    ops = ("Loop",)
    peers = {"onnxsim": "eliminate_loop_with_const_trip_count"}

    def count(self, loop: Carried, scan: Scan, most: int) -> int:
        return rounds_of(loop, most)


class EliminateScanWithConstLength(Unrolling):
    """Replace a `Scan` whose scanned length is fixed and small with copies of its body.

    Each copy reads its elements by `Gather`; `Concat` stacks the results, along the axes and in the directions of the
    node. The limits are those of `eliminate_loop_with_const_trip_count`. The batched form of opset 8 stays.
    """

    opsets = "9-"
    ops = ("Scan",)
    late = True  # first, the iterations may be vectorized, once the types in the body are known

    def count(self, loop: Carried, scan: Scan, most: int) -> int:
        return scan.length
