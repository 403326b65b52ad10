"""Scales of columns, taken into the matrix product before them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.affine import Affine
from graphopt.operators.linear import PLAIN_FLOATS, narrowed
from graphopt.rewrite import Numerics, OpRule, Outcome, Rewriter


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
        value, product, bias = _product(node)
        for inner in {value: None, product: None}:
            inner.sole_source("Add", "MatMul", reader=node)
        matmul = product.source("MatMul", reader=node)
        x, weight = matmul.operand(0), matmul.operand(1)
        if not weight.is_const or (weight.rank or 0) < 2:
            raise Decline("the right operand of {} is not a constant matrix", product.name)
        if weight.uses > 1:
            raise Decline("{} has other readers", weight.name)
        if weight.dtype not in PLAIN_FLOATS:
            raise Decline("the element type of {} is not one of floats", weight.name)
        matrix = weight.array()
        rank, columns = product.rank or 1, int(matrix.shape[-1])
        scale = Affine.of(node, value, rank, rank - 1, columns).scale
        assert scale is not None
        scaled = rw.op("MatMul", x, rw.constant(_kept(matrix, scale, "weights"), like=weight))
        if bias is not None:
            row = scale.item(0) if scale.size and (scale == scale[0]).all() else scale
            scaled = rw.op("Add", scaled, rw.constant(_kept(bias.array(), row, "biases"), like=bias))
        return rw.replace(node, [scaled])


def _product(node: Node) -> tuple[Value, Value, Value | None]:
    """What a node scales, the product in it, and what is added to that."""
    for value in node.inputs if node.op == "Mul" else node.inputs[:1]:
        if value is None:
            continue
        if value.made_by("MatMul") is not None:
            return value, value, None
        add = value.made_by("Add")
        for product, bias in (add.inputs, add.inputs[::-1]) if add is not None else ():
            if product is not None and product.made_by("MatMul") is not None:
                return value, product, bias
    raise Decline


def _kept(array: np.ndarray, row: np.ndarray | float, name: str) -> np.ndarray:
    """An array with its last axis scaled.

    Raises:
        Decline: numbers leave the range in which they keep their digits.
    """
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64) * row
    found = narrowed(wide, array.dtype, name)
    smallest = np.finfo(array.dtype).tiny
    before, after = np.abs(array), np.abs(wide)
    if bool(((after < smallest) & (before >= smallest) & (np.asarray(row) != 0)).any()):
        raise Decline("the new {} leave the range of their element type", name)
    return found
