"""Scales of columns, taken into the matrix product before them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by
from graphopt_passes.fusion.convolution import narrowed

_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})


class FuseMulIntoMatmul(OpRule):
    """Multiply the constant matrix of a `MatMul` by the constants that its result is multiplied or divided by.

    One number per column, or one for all, as layer scale has them after a linear layer; a constant that is added in
    between is multiplied too. No weight may become so small that it loses digits.
    """

    name = "fuse_mul_into_matmul"
    ops = ("Mul", "Div")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxslim": "FusionGemmMul"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find the product, and the constant added to it."""
        for at in (0, 1) if node.op == "Mul" else (0,):
            value, other = node.input(at), node.input(1 - at)
            add = made_by(value, "Add")
            for step in (0, 1) if add is not None else (None,):
                product = value if step is None or add is None else add.input(step)
                bias = None if step is None or add is None else add.input(1 - step)
                matmul = made_by(product, "MatMul")
                if matmul is None or value is None or other is None or product is None:
                    continue
                problem = _problem(node, matmul, (value, product), bias)
                return problem if problem is not None else _scaled(node, matmul, bias, other, rw)
        return None


def _problem(node: Node, matmul: Node, inner: tuple[Value, Value], bias: Value | None) -> Mismatch | None:
    """Why the product cannot be changed."""
    weight = matmul.input(1)
    for value in inner:
        if value.producer is None or value.producer.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if not value.one_use:
            return Mismatch("{} has other readers", value.name)
    if weight is None or not weight.is_const or (weight.rank or 0) < 2:
        return Mismatch("the right operand of {} is not a constant matrix", inner[1].name)
    if weight.uses > 1:
        return Mismatch("{} has other readers", weight.name)
    if weight.dtype not in _TYPES:
        return Mismatch("the element type of {} is not one of floats", weight.name)
    if bias is not None and not bias.is_const:
        return Mismatch("{} is not constant", bias.name)
    return None


def _scaled(node: Node, matmul: Node, bias: Value | None, other: Value, rw: Rewriter) -> Outcome:
    """Write the product with other weights, and the addition."""
    x, weight, result = matmul.input(0), matmul.input(1), node.outputs[0]
    constant = other.const()
    weights = weight.const() if weight is not None else None
    if x is None or weights is None or result is None:
        return None
    if constant is None:
        return Mismatch("{} is not constant", other.name)
    row = _row(constant, int(weights.shape[-1]), matmul.outputs[0])
    if row is None:
        return Mismatch("{} has shape {}, not one finite number per column", other.name, constant.shape)
    if node.op == "Div":
        if not row.all():
            return Mismatch("the product is divided by zero")
        row = 1.0 / row
    matrix = _kept(weights, row)
    if matrix is None:
        return Mismatch("the new weights leave the range of their element type")
    product = rw.op("MatMul", x, rw.constant(matrix, like=weight))
    if bias is None:
        return rw.replace(node, [product])
    addend = bias.const()
    shift = _kept(addend, row) if addend is not None else None
    if shift is None:
        return Mismatch("the new bias leaves the range of its element type")
    return rw.replace(node, [rw.op("Add", product, rw.constant(shift, like=bias))])


def _row(constant: np.ndarray, columns: int, product: Value | None) -> np.ndarray | None:
    """A constant that is the same for all rows, as one number per column or one for all; None when it is not so."""
    rank = product.rank if product is not None and product.rank is not None else 1
    if constant.ndim > rank or constant.size not in (1, columns) or constant.dtype == object:
        return None
    if constant.size != 1 and constant.shape[-1] != columns:
        return None
    flat = constant.astype(np.float64).reshape(-1)
    return flat if flat.size and np.isfinite(flat).all() else None


def _kept(array: np.ndarray, row: np.ndarray) -> np.ndarray | None:
    """An array with its last axis scaled, None when numbers leave the range in which they keep their digits."""
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64) * row
    found = narrowed(wide, array.dtype)
    if found is None:
        return None
    smallest = np.finfo(array.dtype).tiny
    before, after = np.abs(array), np.abs(wide)
    return None if bool(((after < smallest) & (before >= smallest) & (row != 0)).any()) else found
