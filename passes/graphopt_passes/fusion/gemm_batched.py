"""Matrix products of more than two dimensions with a bias, as a two-dimensional product between reshapes."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.ir import FLOAT_TYPES
from graphopt.ir.types import element_count
from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Reshape
from graphopt.rewrite import Decline, Dim, Node, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import ForRuntime, check_float
from graphopt_passes.fusion.reshapes import RESHAPES

_ROWS = 64
"""`Add` takes 10 to 20 ns for each row that it broadcasts the bias to; with fewer rows two `Reshape` cost as much."""

_COLUMNS = 512
"""With more columns the `Add` costs little beside the product."""


class FuseMatmulAddBiasIntoGemmBatched(ForRuntime):
    """Fuse a `MatMul` of many rows by a constant matrix and its bias into a `Gemm` between two `Reshape`.

    `Gemm` has a bias but only two dimensions; the `Reshape` nodes are views. This is done where it pays: from 64 rows
    on, not counting dimensions of unknown size, and up to 512 columns.
    """

    peers = {"onnxsim": "fuse_matmul_add_bias_into_gemm_batched", "onnxruntime": "MatMulAddFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, weight: Pattern, bias: Pattern) -> Pattern:
        """`x weight + bias`."""
        return op.Add(op.MatMul(x, weight, _bind="matmul"), bias)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        check_float(m.matmul.result)
        rows, columns = _rows(m.x, m.weight)
        if columns > _COLUMNS:
            raise Decline("the product has {} columns, too many to gain by it", columns)
        count = element_count(rows)
        if count < _ROWS:
            raise Decline("{} is only known to have {} rows, too few to gain by it", m.x.name, count)
        target = [dim if isinstance(dim, int) else -1 for dim in (*rows, columns)]
        if target.count(-1) > 1:
            raise Decline("more than one dimension of {} is not known", m.x.name)
        row = _row(m.bias, target, rw)
        product = rw.op("Gemm", _matrix(m.x, m.weight, rw), m.weight, row)
        return rw.op("Reshape", product, shape=target)


class FuseMatmulAddBiasIntoGemmBetweenReshapes(PatternRule):
    """Fuse a `MatMul`, its bias and the reshape of their sum into a `Gemm` and that reshape.

    `Gemm` has a bias but only two dimensions. A `Reshape` that makes a matrix of the rows replaces an earlier one, or
    is shared by several such products, like those for query, key and value, so that there are always fewer operators.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers = {"onnxsim": "fuse_matmul_add_bias_into_gemm_batched", "onnxruntime": "MatMulAddFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, weight: Pattern, bias: Pattern) -> Pattern:
        """`x weight + bias`, in another shape."""
        return op.AnyOf(*RESHAPES)(op.Add(op.MatMul(x, weight, _bind="matmul"), bias), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        product = m.matmul.result
        if product.dtype not in FLOAT_TYPES:
            raise Decline("Gemm does not support the element type of {}", product.name)
        rows, columns = _rows(m.x, m.weight)
        row = _row(m.bias, (*rows, columns), rw)
        others = [user for user in m.x.users if user.graph is rw.graph and user is not m.matmul]
        if not (_is_matrix_before(m.matmul) or any(map(_is_such_product, others))):
            raise Decline("{} would be reshaped for one product", m.x.name)
        gemm = rw.op("Gemm", _matrix(m.x, m.weight, rw), m.weight, row)
        return Reshape.to(gemm, m.root.result.dims(), before=(None, columns)).write(rw)


def _is_matrix_before(matmul: Node) -> bool:
    """Whether the reshape before the product is removed with it, or reads a matrix of the same rows."""
    x = matmul.operand(0)
    reshape = x.made_by(*RESHAPES)
    if reshape is None or reshape.graph is not matmul.graph:
        return False
    before = reshape.operand(0).shape or ()
    return x.one_use or (len(before) == 2 and before[1] == matmul.operand(1).sizes()[0])


def _is_such_product(node: Node) -> bool:
    """Whether a node is another product of this kind, or the reshape that was inserted before one."""
    if node.op != "MatMul":
        return node.op == "Reshape" and node.result.rank == 2 and any(user.op == "Gemm" for user in node.result.users)
    sums = [user for user in node.result.users if user.op == "Add"]
    return node.operand(1).is_const and any(user.op in RESHAPES for each in sums for user in each.result.users)


def _rows(x: Value, weight: Value) -> tuple[tuple[Dim, ...], int]:
    """The sizes of the row axes, and the number of columns, of a product of three dimensions or more."""
    shape = x.dims()
    if len(shape) == 2:
        raise Decline
    if len(shape) < 3:
        raise Decline("{} has rank {}, expected 3 at least", x.name, len(shape))
    if not weight.is_const or len(weight.dims()) != 2:
        raise Decline("{} is not a constant matrix", weight.name)
    depth, columns = weight.sizes()
    if 0 in (depth, columns, *shape):
        raise Decline("{} or {} is empty", x.name, weight.name)
    return shape[:-1], columns


def _row(bias: Value, shape: Sequence[Dim], rw: Rewriter) -> Value:
    """A bias as one row, or one number, for all rows of a product of `shape`; declines if rows differ."""
    dims = bias.dims()
    if len(dims) > len(shape):
        raise Decline("{} would raise the rank of the product", bias.name)
    if dims and dims[-1] not in (1, shape[-1]):
        raise Decline("{} of shape {} is not known to broadcast into the product", bias.name, dims)
    if len(dims) < 2:
        return bias
    if not bias.is_const or any(dim != 1 for dim in dims[:-1]):
        raise Decline("{} is not the same for all rows", bias.name)
    return rw.constant(bias.array().reshape(-1), like=bias)


def _matrix(x: Value, weight: Value, rw: Rewriter) -> Value:
    """The rows of a value as a matrix, read from before an earlier reshape where there is one."""
    depth = weight.sizes()[0]
    earlier = x.made_by(*RESHAPES)
    if earlier is not None and earlier.graph is rw.graph:
        x = earlier.operand(0)
        if x.rank == 2 and x.dims()[1] == depth:
            return x
    return rw.op("Reshape", x, shape=(-1, depth))
