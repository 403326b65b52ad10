"""Slices and gathers that take everything."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list, same_shape

_TO_THE_END = (1 << 31) - 1
"""Exporters write this, or the largest 64-bit integer, for an end that is not known."""


class EliminateNopSlice(OpRule):
    """Remove `Slice` that takes the whole of every axis, one element after the other.

    It starts at 0 and ends at or behind the end, which is the size where that is known, or a number from 2^31-1 on.
    Where steps are 1 and the shapes before and after are known to be equal, starts and ends need not be known.
    """

    name = "eliminate_nop_slice"
    ops = ("Slice",)
    peers: ClassVar[dict[str, str]] = {
        "onnxruntime": "EliminateSlice",
        "onnxscript": "collapse_slice_rule",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read starts, ends and steps."""
        x, y = node.inputs[0], node.outputs[0]
        if x is None or y is None:
            return None
        steps = int_list(node, "steps", 4, 10)
        if isinstance(steps, Mismatch):
            return steps
        if any(step != 1 for step in steps or ()):
            return None
        if same_shape(x, y):
            return rw.replace(node, [x])
        problem = _leaves_out(node, x)
        return rw.replace(node, [x]) if problem is None else problem


def _leaves_out(node: Node, x: Value) -> Mismatch | None:
    """Why an element may be left out; None when none is."""
    starts, ends, axes = int_list(node, "starts", 1, 10), int_list(node, "ends", 2, 10), int_list(node, "axes", 3, 10)
    if isinstance(starts, Mismatch):
        return starts
    if isinstance(ends, Mismatch):
        return ends
    if isinstance(axes, Mismatch):
        return axes
    starts, ends = starts or (), ends or ()
    for start, end, axis in zip(starts, ends, range(len(starts)) if axes is None else axes, strict=True):
        dim: Dim = None
        if x.shape is not None and -len(x.shape) <= axis < len(x.shape):
            dim = x.shape[axis]
        if isinstance(dim, int):
            first, last = (number + dim if number < 0 else number for number in (start, end))
            if first > 0 or last < dim:
                return Mismatch("it takes {} to {} of {} along axis {}", max(first, 0), min(last, dim), dim, axis)
        elif (start != 0 and start >= -_TO_THE_END) or end < _TO_THE_END:
            return Mismatch("the size of axis {} of {} is not known", axis, x.name)
    return None


class EliminateNopGather(OpRule):
    """Remove `Gather` that takes every slice along its axis in order."""

    name = "eliminate_nop_gather"
    ops = ("Gather",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the indices with 0, 1, 2, ... up to the size."""
        x, indices = node.inputs[0], node.inputs[1]
        if x is None or indices is None or indices.rank != 1 or not indices.is_const:
            return None
        found = indices.const()
        if found is None or not found.size or (found[0] not in (0, -found.size)):
            return None
        axis = node.attr("axis", 0)
        if x.shape is None or not -len(x.shape) <= axis < len(x.shape):
            return Mismatch("the rank of {} is not known", x.name)
        size = x.shape[axis]
        if size != found.size:
            return Mismatch("it takes {} of {} along axis {}", found.size, size or "unknown", axis)
        whole = np.arange(size)
        if not np.array_equal(np.where(found < 0, found + size, found), whole):
            return Mismatch("it takes all slices along axis {} in another order", axis)
        return rw.replace(node, [x])
