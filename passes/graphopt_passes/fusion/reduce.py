"""Reductions that follow each other, or whose axes come back."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
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
        reduce = made_by(value, *REDUCTIONS)
        if value is None or reduce is None or reduce.attr("keepdims", 1):
            return None
        problem = only_reader(value, node)
        if problem is not None:
            return problem
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


class FuseConsecutiveReduce(OpRule):
    """Join two reductions of the same kind into one over the axes of both.

    Sums, means, products and norms; means and norms of floats only, since those of integers are rounded in between.
    Both keep their axes, or neither does; or the second drops all that the first kept.
    """

    name = "fuse_consecutive_reduce"
    ops = ("ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd", "ReduceSum")
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxsim": "fuse_consecutive_reduce"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Count the second axes among those that the first leaves."""
        value = node.input(0)
        first = made_by(value, node.op)
        if value is None or first is None:
            return None
        problem = only_reader(value, node)
        if problem is not None:
            return problem
        x = first.input(0)
        if x is None or (node.op not in ("ReduceProd", "ReduceSum") and x.dtype not in FLOAT_TYPES):
            return Mismatch("the element type of {} is not known to be a float", value.name)
        keeps, kept = bool(first.attr("keepdims", 1)), bool(node.attr("keepdims", 1))
        axes = _joined_axes(first, node, x, keeps)
        if isinstance(axes, Mismatch):
            return axes
        own = read_axes(node)
        if keeps != kept and (kept or not isinstance(own, tuple) or len(axes) > len(own)):
            return Mismatch("one keeps its axes, the other does not")
        since = 13 if node.op == "ReduceSum" else 18
        attrs = {key: given for key, given in node.attrs.items() if key != "axes"}
        if node.graph.opset() < since:
            return rw.replace(node, [rw.op(node.op, x, **attrs, axes=tuple(axes))])
        return rw.replace(node, [rw.op(node.op, x, np.array(axes, np.int64), **attrs)])


def _joined_axes(first: Node, second: Node, x: Value, keep: bool) -> list[int] | Mismatch:
    one, two = read_axes(first), read_axes(second)
    for axes in (one, two):
        if isinstance(axes, Mismatch):
            return axes
    if not one or not two or isinstance(one, Mismatch) or isinstance(two, Mismatch):
        return Mismatch("one of them reduces all axes, or none")
    before = absolute(one, x.rank)
    rank = None if x.rank is None or before is None else x.rank - (0 if keep else len(before))
    after = absolute(two, rank)
    if before is None or after is None:
        return Mismatch("the rank of {} is not known", x.name)
    if not keep:
        if x.rank is None:
            return Mismatch("the rank of {} is not known", x.name)
        left = [axis for axis in range(x.rank) if axis not in before]
        after = tuple(left[axis] for axis in after)
    return sorted({*before, *after})
