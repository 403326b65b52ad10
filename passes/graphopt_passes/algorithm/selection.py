"""Elements picked out, and put in, one by one."""

from __future__ import annotations

from onnx import TensorProto as T

from graphopt.match import Attr, Match, OpBuilder, Pattern
from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Decline, Node, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.movement import last_to_front
from graphopt_passes.algorithm.work import Weighed, count, size_of


class ConvertGatherElementsToGather(Weighed, PatternRule):
    """Take whole slices by `Gather` or `GatherND` where the indices of `GatherElements` repeat along the other axes.

    Exporters expand the positions of a detector's best boxes to the width of what is chosen.
    """

    opsets = "12-"

    def pattern(self, op: OpBuilder, x: Pattern, positions: Pattern) -> Pattern:
        """The repeated positions stay for their other readers, where they have any."""
        repeated = op.AnyOf("Expand", "Tile")(positions, ..., _shared=True, _bind="repeated")
        return op.GatherElements(x, repeated, axis=Attr("axis"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        x, positions, repeated = m.x, m.positions, m.repeated.result
        dims, wanted, own = x.dims(), repeated.dims(), positions.dims()
        axis = x.axis(m.axis or 0)
        if len(own) != len(dims) or own[axis] != wanted[axis] or own[axis] is None:
            raise Decline("{} is repeated along axis {}, too", positions.name, axis)
        others = [at for at in range(len(dims)) if at != axis]
        if any(dims[at] is None or dims[at] != wanted[at] for at in others):
            raise Decline("{} does not take whole slices of {}", repeated.name, x.name)
        varied = [at for at in others if own[at] != 1]
        if varied and (varied != list(range(axis)) or any(own[at] != dims[at] for at in varied)):
            raise Decline("{} is not the same along the axes behind axis {}", positions.name, axis)
        size = size_of(repeated)
        self.weigh(rw, {"kernel": 2, "gather apart": size}, {"kernel": 2, "read": size})
        if not varied:
            return rw.op("Gather", x, Reshape.to(positions, (own[axis],)).write(rw), axis=axis)
        if positions.dtype != T.INT64:
            raise Decline("{} is not of int64, which GatherND takes alone", positions.name)
        return rw.op("GatherND", x, Reshape.to(positions, (*own[: axis + 1], 1)).write(rw), batch_dims=axis)


class ConvertGatherAxis(Weighed, OpRule):
    """Gather along the last axis as along the first one, between two `Transpose`, where whole slices are copied."""

    ops = ("Gather",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, positions = node.operand(0), node.operand(1)
        axis, rank = x.axis(node.attr("axis", 0)), len(x.dims())
        if positions.rank != 1 or axis != rank - 1 or rank < 2 or x.is_const:
            raise Decline
        if x.dtype not in (T.FLOAT, T.INT32):
            raise Decline("{} is not of 4 bytes an element, for which the kernels were measured", x.name)
        size = size_of(x)
        taken = count((*x.dims()[:-1], *positions.dims()))
        self.weigh(rw, {"kernel": 1, "gather last": taken}, {"kernel": 3, "move": size + taken, "read": taken})
        first = last_to_front(x)
        found = rw.op("Gather", first.write(rw), positions, axis=0)
        return rw.replace(node, [Transpose(found, first.inverse).write(rw)])
