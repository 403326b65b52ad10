"""Gathers of neighbours."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter

_MOST_BYTES = 1 << 16


class ConvertGatherToSlice(OpRule):
    """Take neighbours in order with a `Slice`, which copies them as one block, not with a `Gather` one by one.

    The indices are a constant list, and the size of the axis is known: a `Gather` complains of positions that do not
    exist, which a `Slice` passes over.
    """

    name = "convert_gather_to_slice"
    ops = ("Gather",)
    opsets = "10-"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "GatherToSliceFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the indices with a range."""
        x, indices = node.inputs[0], node.inputs[1]
        if x is None or indices is None or indices.rank != 1 or x.is_const:
            return None
        array = indices.const(_MOST_BYTES)
        if array is None or array.size < 2:
            return None
        axis = node.attr("axis", 0)
        if x.shape is None or not -len(x.shape) <= axis < len(x.shape):
            return Mismatch("the rank of {} is not known", x.name)
        size = x.shape[axis]
        if not isinstance(size, int):
            return Mismatch("the size of axis {} of {} is not known", axis, x.name)
        found = np.where(array < 0, array + size, array).astype(np.int64)
        start, end = int(found[0]), int(found[0]) + found.size
        if start < 0 or end > size or not np.array_equal(found, np.arange(start, end)):
            return Mismatch("the indices are no range of positions")
        bounds = (np.array([number], np.int64) for number in (start, end, axis % len(x.shape)))
        return rw.replace(node, [rw.op("Slice", x, *bounds)])
