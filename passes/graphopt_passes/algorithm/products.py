"""Matrix products with one column."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.operators import Reshape
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.algorithm.work import Weighed, count, joined
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST


class ConvertColumnProductToRow(Weighed, OpRule):
    """Multiply by a vector, or by a matrix of one column, from the left instead of from the right.

    One row times a transposed matrix reads the matrix once. ONNX Runtime multiplies by a vector row by row, and packs a
    constant column into columns of zeros.
    """

    ops = ("MatMul",)
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, column = node.operand(0), node.operand(1)
        sizes, dims = column.dims(), x.dims()
        if len(dims) < 2 or len(sizes) not in (1, 2) or sizes[1:] not in ((), (1,)):
            raise Decline
        if x.dtype != TensorProto.FLOAT:
            raise Decline("{} is not of float32, for which the kernels were measured", x.name)
        if len(sizes) == 2 and not column.is_const:
            raise Decline("{} is not constant: already fast", column.name)
        length = column.size(0)
        rows = dims[:-1]
        amount, times = count(rows), count((*rows, length))
        if not length or not amount:
            raise Decline("{} is empty", x.name)
        flat = x if len(dims) == 2 else Reshape.to(x, (joined(rows), length)).write(rw)
        kinds = {"column": times} if len(sizes) == 2 else {"product apart": times, "product row": amount}
        self.weigh(rw, {"kernel": 1, **kinds}, {"kernel": 3, "read": times})
        row = Reshape.to(column, (1, length)).write(rw)
        made = rw.op("FusedMatMul", row, flat, domain=DOMAIN, transB=1)
        return rw.replace(node, [Reshape.to(made, (*rows, *sizes[1:])).write(rw)])
