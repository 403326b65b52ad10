"""Matrix products that transpose and scale by themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, first, not_float
from graphopt_passes.fusion.factors import number

_FUSED = f"{DOMAIN}::FusedMatMul"
_PRODUCTS = ("MatMul", _FUSED)
_LARGEST = 2.0**40
"""Scales beyond this, or below its reciprocal, stay: with them a product may overflow in one order only."""


class FuseTransposeIntoMatmul(OpRule):
    """Let `FusedMatMul` read an operand transposed, where a `Transpose` swaps its last two axes."""

    name = "fuse_transpose_into_matmul"
    ops = _PRODUCTS
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "MatmulTransposeFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a `Transpose` before either operand."""
        if node.attr("transBatchA", 0) or node.attr("transBatchB", 0):
            return None
        for index, flag in enumerate(("transA", "transB")):
            value = node.input(index)
            transpose = made_by(value, "Transpose")
            if value is None or transpose is None or transpose.inputs[0] is None:
                continue
            if not _swaps_matrix(transpose):
                continue
            attrs = {**node.attrs, flag: 1 - int(node.attr(flag, 0))}
            problem = first(only_reader(value, node), not_float(value), _no_matrices(node), _empty(node, attrs))
            if problem is not None:
                return problem
            operands = list(node.inputs)
            operands[index] = transpose.inputs[0]
            return rw.replace(node, [_product(rw, operands, attrs)])
        return None


class FuseScaleIntoMatmul(OpRule):
    """Let `FusedMatMul` multiply with a constant that an operand or the product is multiplied with or divided by."""

    name = "fuse_scale_into_matmul"
    ops = (*_PRODUCTS, "Mul", "Div")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "MatMulScaleFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a scale before the product, or for a product before the scale."""
        if node.op in ("Mul", "Div"):
            return _scale_after(node, rw)
        for index in (0, 1):
            value = node.input(index)
            found = _scaled(value.producer) if value is not None and value.producer is not None else None
            if value is None or found is None:
                continue
            x, scale, constant = found
            problem = first(only_reader(value, node), not_float(value), _no_matrices(node), _odd(scale, constant, x))
            if problem is not None:
                return problem
            operands = list(node.inputs)
            operands[index] = x
            return rw.replace(node, [_product(rw, operands, _times(node, scale))])
        return None


def _scale_after(node: Node, rw: Rewriter) -> Outcome:
    found = _scaled(node)
    product = found[0].producer if found is not None else None
    if found is None or product is None or product.op not in _PRODUCTS:
        return None
    value, scale, constant = found
    problem = first(only_reader(value, node), not_float(value), _no_matrices(product), _odd(scale, constant, value))
    if problem is not None:
        return problem
    return rw.replace(node, [_product(rw, product.inputs, _times(product, scale))])


def _scaled(node: Node) -> tuple[Value, float, Value] | None:
    """What a `Mul` or `Div` by a constant number scales, by how much, and the constant."""
    left, right = node.input(0), node.input(1)
    if left is None or right is None or node.op not in ("Mul", "Div"):
        return None
    scale = number(right)
    if scale is not None:
        return (left, 1 / scale if scale else math.inf, right) if node.op == "Div" else (left, scale, right)
    scale = number(left) if node.op == "Mul" else None
    return None if scale is None else (right, scale, left)


def _odd(scale: float, constant: Value, x: Value) -> Mismatch | None:
    if not 1 / _LARGEST <= abs(scale) <= _LARGEST:
        return Mismatch("{} is not a moderate number", constant.name)
    if constant.rank and (x.rank is None or constant.rank > x.rank):
        return Mismatch("{} may add axes to {}", constant.name, x.name)
    return None


def _times(product: Node, scale: float) -> dict[str, Any]:
    return {**product.attrs, "alpha": float(product.attr("alpha", 1.0)) * scale}


def _product(rw: Rewriter, operands: list[Value | None], attrs: dict[str, Any]) -> Value:
    product: Value = rw.op("FusedMatMul", *operands, domain=DOMAIN, **attrs)
    return product


def _swaps_matrix(transpose: Node) -> bool:
    """Whether a `Transpose` swaps the last two axes and leaves the others."""
    value = transpose.inputs[0]
    rank = value.rank if value is not None else None
    perm = tuple(transpose.attr("perm", ()) or (range(rank)[::-1] if rank is not None else ()))
    last = len(perm)
    return last >= 2 and perm == (*range(last - 2), last - 1, last - 2)


def _empty(product: Node, attrs: dict[str, Any]) -> Mismatch | None:
    """Why a product must not transpose an operand: the kernel for batches does not take what may be empty.

    It leaves the result unset where nothing is added up, and refuses an empty batch that the other operand has not.
    """
    a, b = product.inputs[:2]
    if a is None or b is None or a.shape is None or b.shape is None:
        return Mismatch("the shapes of the operands are not known")
    ranks = len(a.shape), len(b.shape)
    if not _in_batches(ranks, attrs) or ranks[0] < ranks[1] or _in_batches(ranks, product.attrs, plain=False):
        return None  # as one matrix, or no worse than it is
    sums = (a.shape[-2 if product.attr("transA", 0) else -1], b.shape[-1 if product.attr("transB", 0) else -2])
    if not any(isinstance(size, int) and size > 0 for size in sums):
        return Mismatch("nothing may be left to add up, of which {} would not be zero", product.op_type)
    others = (*[None] * (ranks[0] - ranks[1]), *b.shape[:-2])
    for size, other in zip(a.shape[:-2], others, strict=True):
        if size is None or (size != other and (not isinstance(size, int) or not size)):
            return Mismatch("{} may have an empty batch, which would be refused", a.name)
    return None


def _in_batches(ranks: tuple[int, int], attrs: Mapping[str, Any], *, plain: bool = True) -> bool:
    """Whether the kernel multiplies matrix by matrix, not all in one; `plain` where it transposes none as well."""
    flags = [bool(attrs.get(name, 0)) for name in ("transA", "transB")]
    return (any(flags) or plain) if ranks[1] > 2 else ranks[0] > 2 and flags[0]


def _no_matrices(product: Node) -> Mismatch | None:
    """Vectors as operands have meanings of their own."""
    for value in product.inputs[:2]:
        if value is None or value.rank is None or value.rank < 2:
            return Mismatch("{} is not known to be a matrix", value.name if value is not None else "an operand")
    return None
