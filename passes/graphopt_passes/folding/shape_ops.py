"""Folding of single operators on shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from graphopt.operators import Gather, Shape, Slice
from graphopt.rewrite import Decline, Dim, Node, OpRule, Outcome, Rewriter
from graphopt_passes.folding.store import store


class EliminateShapeOp(OpRule):
    """Replace `Shape` with a constant where all sizes in its result are fixed.

    Only the sizes between `start` and `end` have to be fixed.
    """

    ops = ("Shape",)
    peers = {"onnxoptimizer": "eliminate_shape_op"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return store(rw, node, [_fixed(node, Shape.of(node).dims())])


class EliminateShapeGather(OpRule):
    """Replace a `Gather` from a shape with the selected sizes, where these are fixed.

    The other sizes may be dynamic. The result has the rank of the indices.
    """

    ops = ("Gather",)
    peers = {"onnxoptimizer": "eliminate_shape_gather"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        dims = Shape.giving(node.operand(0)).dims()
        positions = Gather.of(node).positions
        for index in positions.flat:
            if not -len(dims) <= index < len(dims):
                raise Decline("index {} is out of range for {} dimensions", index, len(dims))
        return store(rw, node, [_fixed(node, (dims[index] for index in positions.flat)).reshape(positions.shape)])


class EliminateSliceAfterShape(OpRule):
    """Replace a `Slice` of a shape with the selected sizes, where these are fixed.

    The slice is taken from the output of `Shape`, after its `start` and `end`.
    """

    ops = ("Slice",)
    peers = {"onnxoptimizer": "eliminate_slice_after_shape"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        dims = Shape.giving(node.operand(0)).dims()
        cut = Slice.of(node).along(0)
        return store(rw, node, [_fixed(node, (dims[position] for position in cut.positions(len(dims))))])


_LARGEST = (1 << 63) - 1


class EliminateNopSize(OpRule):
    """Replace `Size` with the number of elements, where the shape is fixed."""

    ops = ("Size",)
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Multiply the sizes; a single size of 0 is enough."""
        x = node.operand(0)
        count = 0 if 0 in x.dims() else math.prod(_fixed(node, x.dims()).tolist())
        if count > _LARGEST:
            raise Decline("the number of elements of {} overflows int64", x.name)
        return store(rw, node, [np.asarray(count, np.int64)])


def _fixed(node: Node, dims: Iterable[Dim]) -> np.ndarray:
    """The sizes that a node computes; declines if one is not fixed."""
    sizes = list(dims)
    for dim in sizes:
        if not isinstance(dim, int):
            raise Decline(
                "{} holds {}, which is not constant",
                node.result.name,
                "an unknown size" if dim is None else f"size {dim}",
            )
    return np.asarray(sizes, np.int64)
