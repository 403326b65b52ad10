"""Products of more than two dimensions with a bias, as one product of two dimensions between reshapes."""

from __future__ import annotations

from graphopt.ir.types import element_count
from graphopt.match import Match, OpBuilder, Pattern
from graphopt.rewrite import Decline, Dim, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import ForRuntime, check_float
from graphopt_passes.fusion.reshapes import RESHAPES

_ROWS = 64
"""`Add` takes 10 to 20 ns for each row that it repeats the bias for; with fewer rows the two `Reshape` cost as much."""

_COLUMNS = 512
"""In wider rows the time of the product drowns what the `Add` costs."""


class FuseMatmulAddBiasIntoGemmBatched(ForRuntime):
    """Join a `MatMul` of many rows by a constant matrix and its bias into a `Gemm` between two `Reshape`.

    `Gemm` has a bias but only two dimensions; the `Reshape` are views. It is done where that pays: from 64 rows on,
    not counting dimensions of unknown size, and up to 512 columns.
    """

    peers = {"onnxsim": "fuse_matmul_add_bias_into_gemm_batched", "onnxruntime": "MatMulAddFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, weight: Pattern, bias: Pattern) -> Pattern:
        """`x weight + bias`."""
        return op.Add(op.MatMul(x, weight, _bind="matmul"), bias)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The rows one below the other, times the matrix, plus the row, in the shape of the product."""
        if m.x.rank == 2:
            raise Decline
        check_float(m.matmul.result)
        rows, columns = _rows(m.x, m.weight)
        target = [dim if isinstance(dim, int) else -1 for dim in (*rows, columns)]
        if target.count(-1) > 1:
            raise Decline("more than one dimension of {} is not known", m.x.name)
        row = _row(m.bias, target, rw)
        product = rw.op("Gemm", _matrix(m.x, m.weight, rw), m.weight, row)
        return rw.op("Reshape", product, shape=target)


def _rows(x: Value, weight: Value) -> tuple[tuple[Dim, ...], int]:
    """The sizes of the axes of rows, and the number of columns, of a product of many rows and few columns."""
    shape = x.dims()
    if len(shape) < 3:
        raise Decline("{} has rank {}, expected 3 at least", x.name, len(shape))
    if not weight.is_const or len(weight.dims()) != 2:
        raise Decline("{} is not a constant matrix", weight.name)
    depth, columns = weight.sizes()
    if 0 in (depth, columns, *shape):
        raise Decline("{} or {} is empty", x.name, weight.name)
    if columns > _COLUMNS:
        raise Decline("the product has {} columns, too many to gain by it", columns)
    rows = element_count(shape[:-1])
    if rows < _ROWS:
        raise Decline("{} is only known to have {} rows, too few to gain by it", x.name, rows)
    return shape[:-1], columns


def _row(bias: Value, shape: list[int], rw: Rewriter) -> Value:
    """A bias as one row, or one number, for all rows of a product of a shape; declines where it differs by rows."""
    dims = bias.dims()
    if len(dims) > len(shape):
        raise Decline("{} would add axes to the product", bias.name)
    if dims and dims[-1] not in (1, shape[-1]):
        raise Decline("{} of shape {} is not known to broadcast into the product", bias.name, dims)
    if len(dims) < 2:
        return bias
    if not bias.is_const or any(dim != 1 for dim in dims[:-1]):
        raise Decline("{} is not the same for all rows", bias.name)
    return rw.constant(bias.array().reshape(-1), like=bias)


def _matrix(x: Value, weight: Value, rw: Rewriter) -> Value:
    """The rows of a value one below the other; read before an earlier reshape, which may have been a matrix."""
    depth = weight.sizes()[0]
    earlier = x.made_by(*RESHAPES)
    if earlier is not None and earlier.graph is rw.graph:
        x = earlier.operand(0)
        if x.rank == 2 and x.dims()[1] == depth:
            return x
    return rw.op("Reshape", x, shape=(-1, depth))
