"""Products of more than two dimensions with a bias, as one product of two dimensions between reshapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.contrib.operands import NEWEST, first, not_float
from graphopt_passes.fusion.reshapes import RESHAPES

_ROWS = 64
"""`Add` takes 10 to 20 ns for each row that it repeats the bias for; with fewer rows the two `Reshape` cost as much."""

_COLUMNS = 512
"""In wider rows the time of the product drowns what the `Add` costs."""


class FuseMatmulAddBiasIntoGemmBatched(OpRule):
    """Join a `MatMul` of many rows by a constant matrix and its bias into a `Gemm` between two `Reshape`.

    `Gemm` has a bias but only two dimensions; the `Reshape` are views. It is done where that pays: from 64 rows on,
    not counting dimensions of unknown size, and up to 512 columns.
    """

    name = "fuse_matmul_add_bias_into_gemm_batched"
    ops = ("Add",)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {
        "onnxsim": "fuse_matmul_add_bias_into_gemm_batched",
        "onnxruntime": "MatMulAddFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Try the product on either side."""
        outcome: Outcome = None
        for product, bias in (node.inputs, node.inputs[::-1]):
            matmul = made_by(product, "MatMul")
            if product is None or bias is None or matmul is None:
                continue
            x, weight = matmul.inputs[:2]
            if x is None or weight is None or x.rank == 2:
                continue
            problem = first(only_reader(product, node), not_float(product), _no_rows(x, weight))
            if problem is not None:
                outcome = problem
                continue
            assert x.shape is not None
            assert weight.shape is not None
            outcome = _gemm(node, rw, (x, weight, bias), (*x.shape[:-1], weight.shape[1]))
            if not isinstance(outcome, Mismatch):
                return outcome
        return outcome


def _no_rows(x: Value, weight: Value) -> Mismatch | None:
    """Why a product is not of many rows by one constant matrix of few columns; None when it is."""
    if x.shape is None or len(x.shape) < 3:
        return Mismatch("{} is not known to have more than two dimensions", x.name)
    if not weight.is_const or weight.shape is None or len(weight.shape) != 2:
        return Mismatch("{} is not a constant matrix", weight.name)
    depth, columns = weight.shape
    if not isinstance(depth, int) or not isinstance(columns, int) or 0 in (depth, columns, *x.shape):
        return Mismatch("{} or {} is empty", x.name, weight.name)
    if columns > _COLUMNS:
        return Mismatch("the product has {} columns, too many to gain by it", columns)
    rows = math.prod(dim for dim in x.shape[:-1] if isinstance(dim, int))
    if rows < _ROWS:
        return Mismatch("{} is only known to have {} rows, too few to gain by it", x.name, rows)
    return None


def _gemm(node: Node, rw: Rewriter, operands: tuple[Value, Value, Value], shape: Sequence[Dim]) -> Outcome:
    x, weight, bias = operands
    target = [dim if isinstance(dim, int) else -1 for dim in shape]
    if target.count(-1) > 1:
        return Mismatch("more than one dimension of {} is not known", x.name)
    row = _row(bias, target, rw)
    if isinstance(row, Mismatch):
        return row
    product: Value = rw.op("Gemm", _matrix(x, node, weight, rw), weight, row)
    return rw.replace(node, [rw.op("Reshape", product, np.array(target, np.int64))])


def _row(bias: Value, shape: Sequence[int], rw: Rewriter) -> Value | Mismatch:
    """A bias as one row, or one number, for all rows of a product of a shape."""
    if bias.shape is None or len(bias.shape) > len(shape):
        return Mismatch("{} is not known to broadcast into the product", bias.name)
    if bias.shape and bias.shape[-1] not in (1, shape[-1]):
        return Mismatch("{} of shape {} is not known to broadcast into the product", bias.name, bias.shape)
    if len(bias.shape) < 2:
        return bias
    array = bias.const()
    if array is None or any(dim != 1 for dim in bias.shape[:-1]):
        return Mismatch("{} is not the same for all rows", bias.name)
    return rw.constant(array.reshape(-1), like=bias)


def _matrix(x: Value, node: Node, weight: Value, rw: Rewriter) -> Value:
    """The rows of a value one below the other; read before an earlier reshape, which may have been a matrix."""
    assert weight.shape is not None
    depth = weight.shape[0]
    earlier = x.producer
    if earlier is not None and earlier.op in RESHAPES and earlier.graph is node.graph:
        x = earlier.inputs[0] or x
        if x.shape is not None and len(x.shape) == 2 and x.shape[1] == depth:
            return x
    rows: Value = rw.op("Reshape", x, np.array([-1, depth], np.int64))
    return rows
