"""Matrix products with one column, and with repeated heads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from onnx import TensorProto

from graphopt.ir.types import agree
from graphopt.operators import Reshape
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count, joined, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST


class ConvertColumnProductToRow(Weighed, OpRule):
    """Replace a product with a vector, or a matrix of one column, with the transposed product, which has one row.

    One row times a transposed matrix reads the matrix once. ONNX Runtime multiplies by a vector row by row, and pads a
    constant column with columns of zeros.
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
            raise Decline("{} is not float32, for which the kernels were measured", x.name)
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


_RANK = 4
_SHAPE = 0.5
"""The cost of computing an unknown shape, in kernels: three kernels, on four numbers each."""


class ConvertRepeatedHeadsToRows(Weighed, OpRule):
    """Multiply by unrepeated keys or values, with the query heads that share them as rows of one product.

    For grouped-query attention, exporters repeat each key and value head for its group of query heads, which copies the
    whole cache at every step. As rows of one product, the group reads its head once. Only the heads must be known.
    """

    ops = ("MatMul", f"{DOMAIN}::FusedMatMul")
    sources = ("Reshape",)
    needs = (("Expand",),)
    opsets = "5-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.domain and any(node.attr(name, 0) for name in ("transA", "transBatchA", "transBatchB")):
            raise Decline
        queries, joined = node.operand(0), node.operand(1)
        expand = joined.source("Reshape", reader=node).operand(0).source("Expand", reader=node)
        single = expand.operand(0)
        times = _repeats(single, expand.result, joined)
        heads = single.size(1)
        dims, others = queries.dims(), (single.dims()[0], heads * times, *single.dims()[3:])
        if queries.dtype != TensorProto.FLOAT or len(dims) != _RANK:
            raise Decline("{} is not float32 of rank {}, for which the kernels were measured", queries.name, _RANK)
        if not all(map(agree, dims[:2], others[:2])):
            raise Decline("the batch and heads of {} and {} are not known to be equal", queries.name, joined.name)
        size_of(queries)
        size, products = count(others), count((*dims, others[-2 if node.attr("transB", 0) else -1]))
        copied = size if joined.one_use and expand.result.one_use else 0
        rows = (dims[0], heads, times * dims[2] if isinstance(dims[2], int) else None, dims[3])
        shapes = sum(not _is_stated(each) for each in (rows, node.result.dims()))
        again = not single.one_use or single.is_const
        now = {"kernel": 2 if again else 3, "element": copied, "read": size, "product": products}
        kernels = (3 if again else 2) + _SHAPE * shapes
        self.weigh(rw, now, {"kernel": kernels, "read": size / times, "product": products})
        once = rw.op("Squeeze", single, axes=(2,))
        product = rw.again(node, _regrouped(queries, rows, 1, times, rw), once)
        return rw.replace(node, [_regrouped(product, node.result.dims(), 2, times, rw)])


def _is_stated(dims: Sequence[Dim]) -> bool:
    """Whether a constant can state a shape with -1 as its third size, even for empty tensors."""
    return isinstance(dims[2], int) or all(isinstance(dim, int) for at, dim in enumerate(dims) if at != 2)


def _repeats(single: Value, stretched: Value, joined: Value) -> int:
    """The number of repetitions of each head; declines if another axis is expanded or merged."""
    before, between, after = single.dims(), stretched.dims(), joined.dims()
    if len(before) != _RANK + 1 or len(between) != _RANK + 1 or len(after) != _RANK:
        raise Decline
    heads, times = between[1], between[2]
    if before[2] != 1 or not isinstance(heads, int) or not isinstance(times, int) or min(heads, times) < 1:
        raise Decline("the number of heads of {} is not known", single.name)
    kept = (before[0], before[1], *before[3:])
    wanted = (before[0], heads * times, *before[3:])
    # One size may have another name: it is equal all the same, since the number of elements is.
    unlike = [now for now, then in zip(after, wanted, strict=True) if now != then]
    fits = len(unlike) <= 1 and not any(isinstance(size, int) for size in unlike)
    if None in kept or kept != (between[0], between[1], *between[3:]) or not fits:
        raise Decline("{} is not {} with its heads repeated", joined.name, single.name)
    return times


def _regrouped(value: Value, shape: Sequence[Dim], axis: int, times: int, rw: Rewriter) -> Value:
    """Reshape four axes: divide the size of `axis`, 1 or 2, by `times`, and multiply that of the other by it."""
    if _is_stated(shape):
        with suppress(Decline):
            return Reshape.to(value, shape).write(rw)
    less, more = np.ones(_RANK, np.int64), np.ones(_RANK, np.int64)
    less[axis] = more[3 - axis] = times
    sizes = rw.op("Div", rw.op("Mul", rw.op("Shape", value), more), less)
    return rw.op("Reshape", value, sizes)
