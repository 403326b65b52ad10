"""Reductions whose axes come back."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.axes import absolute, read_axes

REDUCTIONS = frozenset(
    "Reduce" + kind
    for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
) | {"ArgMax", "ArgMin"}  # fmt: skip


class FuseConsecutiveReduceUnsqueeze(OpRule):
    """Let a reduction keep its axes instead of putting them back with `Unsqueeze`."""

    name = "fuse_consecutive_reduce_unsqueeze"
    ops = ("Unsqueeze",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_consecutive_reduce_unsqueeze",
        "onnxslim": "FusionReduce",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Set `keepdims`."""
        value = node.input(0)
        reduce = value.producer if value is not None else None
        if value is None or reduce is None or reduce.op not in REDUCTIONS or reduce.attr("keepdims", 1):
            return None
        if reduce.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if not value.one_use:
            return Mismatch("{} has other readers", value.name)
        x = reduce.input(0)
        problem = self._problem(reduce, node, x)
        if problem is not None:
            return problem
        return rw.replace(node, [rw.op(reduce.op_type, *reduce.inputs, **{**reduce.attrs, "keepdims": 1})])

    def _problem(self, reduce: Node, node: Node, x: Value | None) -> Mismatch | None:
        added = read_axes(node)
        removed = (reduce.attr("axis", 0),) if reduce.op.startswith("Arg") else read_axes(reduce)
        for axes in (added, removed):
            if isinstance(axes, Mismatch):
                return axes
        rank = x.rank if x is not None else None
        if not removed:
            if reduce.attr("noop_with_empty_axes", 0) or rank is None:
                return Mismatch("the axes of the reduction are not known")
            removed = tuple(range(rank))
        assert isinstance(added, tuple)
        assert isinstance(removed, tuple)
        if rank is None and sorted(added) == sorted(removed):
            return None
        one, two = absolute(added, rank), absolute(removed, rank)
        if one is None or two is None:
            return Mismatch("the rank of {} is not known", x.name if x is not None else "the input")
        if set(one) != set(two):
            return Mismatch("axes {} are reduced, {} come back", removed, added)
        return None
