"""Matrix products with transposes and scales fused in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphopt.ir.types import agree
from graphopt.match import Either, Match, OpBuilder, Pattern, Scalar
from graphopt.operators import Transpose
from graphopt.operators.quantizing import reads_stored_bytes
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, ForRuntime, check_float

_LARGEST = 2.0**40
"""Scales beyond this, or below its reciprocal, stay: with them a product may overflow in one order only."""


def _products(op: OpBuilder, a: Pattern, b: Pattern) -> Iterator[Pattern]:
    """The standard's product, and `FusedMatMul`."""
    for product in (op.MatMul, op.domain(DOMAIN).FusedMatMul):
        yield product(a, b, _bind="product", _other_attrs=True)


def fused(rw: Rewriter, product: Node, changes: Mapping[Value, Value], attrs: Mapping[str, Any]) -> Value:
    """A product as `FusedMatMul`, with some operands and attributes replaced."""
    operands = [changes.get(value, value) if value is not None else None for value in product.inputs]
    return rw.op("FusedMatMul", *operands, domain=DOMAIN, **{**product.attrs, **attrs})


def check_matrices(product: Node) -> None:
    """Decline unless both operands are matrices; the rules for vectors differ."""
    for value in (product.operand(0), product.operand(1)):
        if (value.rank or 0) < 2:
            raise Decline("{} is not known to be a matrix", value.name)


class FuseTransposeIntoMatmul(ForRuntime):
    """Fold a `Transpose` that swaps the last two axes of an operand into `FusedMatMul`.

    A matrix that is dequantized from constant bytes is left to `move_transposes`, which transposes these: no kernel
    for bytes reads a matrix transposed.
    """

    peers = {"onnxruntime": "MatmulTransposeFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, other: Pattern) -> Pattern:
        transposed = op.Transpose(x, _bind="transpose", _other_attrs=True)
        return Either(*_products(op, transposed, other), *_products(op, other, transposed))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        product, value = m.product, m.transpose.result
        perm = Transpose.of(m.transpose).perm
        *batch, row, column = range(max(len(perm), 2))
        if perm != (*batch, column, row):
            raise Decline("{} moves other axes than the last two", value.name)
        if product.attr("transBatchA", 0) or product.attr("transBatchB", 0):
            raise Decline("{} also has transBatchA or transBatchB", product.op_type)
        if reads_stored_bytes(m.transpose):
            raise Decline("{} is a constant of bytes, which is transposed itself", m.x.name)
        check_float(value)
        check_matrices(product)
        flag = "transA" if value is product.operand(0) else "transB"
        attrs = {flag: 1 - int(product.attr(flag, 0))}
        _check_not_empty(product, {**product.attrs, **attrs})
        return fused(rw, product, {value: m.x}, attrs)


class FuseScaleIntoMatmul(ForRuntime):
    """Fold a constant that multiplies or divides an operand or the product into `alpha` of `FusedMatMul`.

    Where a computed matrix is multiplied by a single row or column, the kernel without `alpha` takes a quarter to half
    of the time. So if there may be a single row, as in a decoder, the left operand is scaled instead.
    """

    finite = True
    peers = {"onnxruntime": "MatMulScaleFusion"}

    def pattern(self, op: OpBuilder, x: Pattern, other: Pattern) -> Pattern:
        """A scale of either operand, or one of the product."""
        scale, divisor = Scalar("scale", silent=True), Scalar("divisor", silent=True)
        scaled = Either(op.Mul(x, scale, _bind="scaled"), op.Div(x, divisor, _bind="scaled"))
        before = Either(*_products(op, scaled, other), *_products(op, other, scaled))
        product = Either(*_products(op, x, other))
        return Either(before, op.Mul(product, scale), op.Div(product, divisor))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        product, scaled = m.product, m.scaled
        check_float(product.result if scaled is None else scaled.result)
        check_matrices(product)
        by = m.scale if m.divisor is None else m.divisor
        check_moderate(by)
        factor = by if m.divisor is None else 1 / by
        return scaled_product(rw, product, {} if scaled is None else {scaled.result: m.x}, factor)


def scaled_product(rw: Rewriter, product: Node, changes: Mapping[Value, Value], factor: float) -> Value:
    """A product, with some operands replaced, times a number: as its `alpha`, or as a scale of its left operand.

    For a single row or column, the kernel reads the right operand as it is if `alpha` is 1, and otherwise packs it.
    """
    left, right, before = product.operand(0), product.operand(1), float(product.attr("alpha", 1.0))
    check_moderate(before * factor)
    if before != 1 or not _may_be_vector(product):
        return fused(rw, product, changes, {"alpha": before * factor})
    width, columns = left.dim(-1), product.result.dim(-1)
    longer = isinstance(columns, int) and not (isinstance(width, int) and width <= columns)
    if left in changes or (longer and not left.is_const):
        raise Decline("{} may have a single row or column, whose kernel has no alpha", product.result.name)
    operands = rw.op("Mul", left, np.array(factor, np.float32)), changes.get(right, right)
    return rw.again(product, *operands)


def _may_be_vector(product: Node) -> bool:
    """Whether a product with a computed right operand may have a single row, or has a single column."""
    left, right = product.operand(0), product.operand(1)
    if product.attr("transA", 0) or (right.is_const and right.rank == 2):
        return False
    rows = left.dims()[-2:-1] if (right.rank or 0) > 2 else left.dims()[:-1]
    return all(not isinstance(size, int) or size == 1 for size in rows) or product.result.dim(-1) == 1


def check_moderate(scale: float) -> None:
    """Decline if a scale, or the product of several, may overflow in one order of multiplication only."""
    if not 1 / _LARGEST <= abs(scale) <= _LARGEST:
        raise Decline("scale {} is too small or too large", scale)


def _check_not_empty(product: Node, attrs: Mapping[str, Any]) -> None:
    """Decline if a transposed operand may be empty, which the kernel for batches does not support.

    It leaves the result unset if the summed axis is empty, and refuses an empty batch if that of the other operand is
    not empty.
    """
    left, right = product.operand(0), product.operand(1)
    a, b = left.dims(), right.dims()
    ranks = len(a), len(b)
    if not _in_batches(ranks, attrs) or ranks[0] < ranks[1] or _in_batches(ranks, product.attrs, plain=False):
        return  # multiplied as one matrix, or by the kernel for batches before, too
    sums = (a[-2 if product.attr("transA", 0) else -1], b[-1 if product.attr("transB", 0) else -2])
    if not any(isinstance(size, int) and size > 0 for size in sums):
        raise Decline("the contracted axis may be empty, where {} would not be zero", product.op_type)
    others = (*[None] * (ranks[0] - ranks[1]), *b[:-2])
    for size, other in zip(a[:-2], others, strict=True):
        if not agree(size, other) and (not isinstance(size, int) or not size):
            raise Decline("{} may have an empty batch, which the kernel rejects", left.name)


def _in_batches(ranks: tuple[int, int], attrs: Mapping[str, Any], *, plain: bool = True) -> bool:
    """Whether the kernel multiplies matrix by matrix, not all at once; `plain` includes products without transposes."""
    flags = [bool(attrs.get(name, 0)) for name in ("transA", "transB")]
    return (any(flags) or plain) if ranks[1] > 2 else ranks[0] > 2 and flags[0]
