"""Elements moved about, and sums along the last axis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto as T

from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of


def last_to_front(x: Value) -> Transpose:
    """The last axis as the first one: a move of one axis."""
    rank = len(x.dims())
    return Transpose(x, (rank - 1, *range(rank - 1)))


class ConvertCumSumAxis(Weighed, OpRule):
    """Sum up along the last axis as along the first one, between two `Transpose`.

    ONNX Runtime adds whole slices of the axis to one another, which are single elements where it is the last one.
    """

    ops = ("CumSum",)
    _TYPES: ClassVar[frozenset[int]] = frozenset({T.FLOAT, T.DOUBLE, T.INT32, T.INT64})

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, axis = node.operand(0), node.operand(1)
        place = x.axis(axis.integer())
        if x.dtype not in self._TYPES:
            raise Decline("the element type of {} is not known to have a kernel", x.name)
        if place != len(x.dims()) - 1 or not place:
            raise Decline("axis {} of {} is not behind others: already fast", place, x.name)
        size = size_of(x)
        self.weigh(rw, {"kernel": 1, "sum apart": size}, {"kernel": 3, "move": 2 * size, "element": size})
        first = last_to_front(x)
        total = rw.op("CumSum", first.write(rw), np.zeros_like(axis.array()), **node.attrs)
        return rw.replace(node, [Transpose(total, first.inverse).write(rw)])


class ConvertDepthToSpaceToMoves(Weighed, OpRule):
    """Write `DepthToSpace` as two `Transpose` that move one axis each, for which the runtime has a kernel."""

    ops = ("DepthToSpace",)
    _TYPES: ClassVar[frozenset[int]] = frozenset({T.FLOAT, T.DOUBLE})

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """The columns of the blocks first, then their rows."""
        x, block = node.operand(0), int(node.attr("blocksize"))
        if x.dtype not in self._TYPES:
            raise Decline("the element type of {} is not known to have a kernel", x.name)
        dims, size = x.dims(), size_of(x)
        channels, height, width = (x.size(axis) for axis in (1, 2, 3))
        if block < 2 or channels % block**2:
            raise Decline("{} has no blocks", x.name)
        self.weigh(rw, {"kernel": 1, "depth to space": size * (2 / block) ** 1.5}, {"kernel": 5, "move": 2 * size})
        left = channels // block**2
        batch = dims[0] if isinstance(dims[0], int) else None

        def times(number: int) -> int | None:
            return None if batch is None else batch * number

        crd = node.attr("mode", "DCR") == "CRD"
        outer, inner = (left, height) if crd else (1, left * height)
        parted = Reshape.to(x, (times(outer * block), block, inner * width)).write(rw)
        columns = Transpose(parted, (0, 2, 1)).write(rw)
        rows = Reshape.to(columns, (times(outer), block, inner, width * block)).write(rw)
        moved = Transpose(rows, (0, 2, 1, 3)).write(rw)
        return rw.replace(node, [Reshape.to(moved, (dims[0], left, height * block, width * block)).write(rw)])


class ConvertRepeatedColumnToProduct(Weighed, OpRule):
    """Repeat numbers along the last axis by a product with ones, where `Expand` or `Tile` copies them one by one."""

    ops = ("Expand", "Tile")
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, dims = node.operand(0), node.operand(0).dims()
        if x.dtype != T.FLOAT or not dims or len(node.result.dims()) != len(dims):
            raise Decline("{} is not of float32, or gets more axes", x.name)
        last = len(dims) - 1
        if node.op == "Tile":
            *others, times = node.operand(1).ints()
            kept = set(others) <= {1}
        else:
            times = node.result.size(last)
            kept = None not in dims and dims[:-1] == node.result.dims()[:-1]
        if dims[-1] != 1 or times <= 1 or not kept:
            raise Decline("{} is not repeated along its last axis alone", x.name)
        size = size_of(x) * times
        self.weigh(rw, {"kernel": 1, f"{node.op.lower()} last": size}, {"kernel": 1, "element": 2 * size})
        return rw.replace(node, [rw.op("Mul", x, np.ones(times, np.float32))])
