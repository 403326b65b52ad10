"""Moving and gathering single elements, and cumulative sums along the last axis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto as T

from graphopt.ir.types import agree
from graphopt.match import Attr, Match, OpBuilder, Pattern
from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Decline, Node, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count, size_of


def last_to_front(x: Value) -> Transpose:
    """Move the last axis to the front, by a `Transpose` that moves one axis."""
    rank = len(x.dims())
    return Transpose(x, (rank - 1, *range(rank - 1)))


class ConvertCumSumAxis(Weighed, OpRule):
    """Move the last axis of `CumSum` to the front, between two `Transpose`.

    ONNX Runtime adds whole slices along the axis, which are single elements if it is the last one.
    """

    ops = ("CumSum",)
    _TYPES: ClassVar[frozenset[int]] = frozenset({T.FLOAT, T.DOUBLE, T.INT32, T.INT64})

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, axis = node.operand(0), node.operand(1)
        place = x.axis(axis.integer())
        if x.dtype not in self._TYPES:
            raise Decline("no kernel is known for the element type of {}", x.name)
        if place != len(x.dims()) - 1 or not place:
            raise Decline("axis {} of {} is not the last of several: already fast", place, x.name)
        size = size_of(x)
        self.weigh(rw, {"kernel": 1, "sum apart": size}, {"kernel": 3, "move": 2 * size, "element": size})
        first = last_to_front(x)
        total = rw.again(node, first.write(rw), np.zeros_like(axis.array()))
        return rw.replace(node, [Transpose(total, first.inverse).write(rw)])


class ConvertDepthToSpaceToMoves(Weighed, OpRule):
    """Replace `DepthToSpace` with two `Transpose` that move one axis each, for which the runtime has a kernel."""

    ops = ("DepthToSpace",)
    _TYPES: ClassVar[frozenset[int]] = frozenset({T.FLOAT, T.DOUBLE})

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Move the columns of the blocks first, then their rows."""
        x, block = node.operand(0), int(node.attr("blocksize"))
        if x.dtype not in self._TYPES:
            raise Decline("no kernel is known for the element type of {}", x.name)
        dims, size = x.dims(), size_of(x)
        channels, height, width = (x.size(axis) for axis in (1, 2, 3))
        if block < 2 or channels % block**2:
            raise Decline("the block size of {} is 1, or does not divide its channels", x.name)
        left, crd = channels // block**2, node.attr("mode", "DCR") == "CRD"
        parts = count(dims[:1]) * left * (block + 1) if crd else 0
        then = {"kernel": 5, "move": 2 * size, "gathered row": size / max(width * block, 1), "short row": parts}
        self.weigh(rw, {"kernel": 1, "depth to space": size * (2 / block) ** 1.5}, then)
        batch = dims[0] if isinstance(dims[0], int) else None

        def times(number: int) -> int | None:
            return None if batch is None else batch * number

        outer, inner = (left, height) if crd else (1, left * height)
        parted = Reshape.to(x, (times(outer * block), block, inner * width)).write(rw)
        columns = Transpose(parted, (0, 2, 1)).write(rw)
        rows = Reshape.to(columns, (times(outer), block, inner, width * block)).write(rw)
        moved = Transpose(rows, (0, 2, 1, 3)).write(rw)
        return rw.replace(node, [Reshape.to(moved, (dims[0], left, height * block, width * block)).write(rw)])


_WIDEST = 1 << 14
"""Longest repeated axis: more ones would take over 64 KiB of the model."""


class ConvertRepeatedColumnToProduct(Weighed, OpRule):
    """Replace an `Expand` or `Tile` that repeats elements along the last axis one by one with a product with ones."""

    ops = ("Expand", "Tile")
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, dims = node.operand(0), node.operand(0).dims()
        if x.dtype != T.FLOAT or not dims or len(node.result.dims()) != len(dims):
            raise Decline("{} is not float32, or its rank increases", x.name)
        last = len(dims) - 1
        if node.op == "Tile":
            *others, times = node.operand(1).ints()
            kept = set(others) <= {1}
        else:
            times = node.result.size(last)
            kept = None not in dims and dims[:-1] == node.result.dims()[:-1]
        if dims[-1] != 1 or times <= 1 or not kept:
            raise Decline("{} is not repeated along its last axis only", x.name)
        if times > _WIDEST:
            raise Decline("a constant of {} ones would be large", times)
        size = size_of(x) * times
        rows = size_of(x) if node.op == "Tile" else 0  # each of which takes `Expand` at least as long
        now = {"kernel": 1, f"{node.op.lower()} last": size}
        self.weigh(rw, now, {"kernel": 1, "element": 2 * size, "short row": rows})
        return rw.replace(node, [rw.op("Mul", x, np.ones(times, np.float32))])


class ConvertGatherElementsToGather(Weighed, PatternRule):
    """Replace a `GatherElements` whose indices repeat along the other axes with a `Gather` or `GatherND` of slices.

    Exporters expand the indices of a detector's best boxes to the width of the gathered rows.
    """

    opsets = "12-"

    def pattern(self, op: OpBuilder, x: Pattern, positions: Pattern) -> Pattern:
        repeated = op.AnyOf("Expand", "Tile")(positions, ..., _shared=True, _bind="repeated")
        return op.GatherElements(x, repeated, axis=Attr("axis"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        x, positions, repeated = m.x, m.positions, m.repeated.result
        dims, wanted, own = x.dims(), repeated.dims(), positions.dims()
        axis = x.axis(m.axis or 0)
        if len(own) != len(dims) or not agree(own[axis], wanted[axis]):
            raise Decline("{} is also expanded along axis {}", positions.name, axis)
        others = [at for at in range(len(dims)) if at != axis]
        if not all(agree(dims[at], wanted[at]) for at in others):
            raise Decline("{} does not select whole slices of {}", repeated.name, x.name)
        varied = [at for at in others if own[at] != 1]
        if varied and (varied != list(range(axis)) or any(own[at] != dims[at] for at in varied)):
            raise Decline("{} varies along the axes after axis {}", positions.name, axis)
        size = size_of(repeated)
        self.weigh(rw, {"kernel": 2, "gather apart": size}, {"kernel": 2, "read": size})
        if not varied:
            return rw.op("Gather", x, Reshape.to(positions, (own[axis],)).write(rw), axis=axis)
        if positions.dtype != T.INT64:
            raise Decline("{} is not int64, as GatherND requires", positions.name)
        return rw.op("GatherND", x, Reshape.to(positions, (*own[: axis + 1], 1)).write(rw), batch_dims=axis)


class ConvertGatherAxis(Weighed, OpRule):
    """Move the last axis of `Gather` to the front, where it copies whole slices, between two `Transpose`."""

    ops = ("Gather",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, positions = node.operand(0), node.operand(1)
        axis, rank = x.axis(node.attr("axis", 0)), len(x.dims())
        if positions.rank != 1 or axis != rank - 1 or rank < 2 or x.is_const:
            raise Decline
        if x.dtype not in (T.FLOAT, T.INT32):
            raise Decline("{} is not float32 or int32, for which the kernels were measured", x.name)
        size = size_of(x)
        taken = count((*x.dims()[:-1], *positions.dims()))
        self.weigh(rw, {"kernel": 1, "gather last": taken}, {"kernel": 3, "move": size + taken, "read": taken})
        first = last_to_front(x)
        found = rw.op("Gather", first.write(rw), positions, axis=0)
        return rw.replace(node, [Transpose(found, first.inverse).write(rw)])
