"""Scales and shifts of columns, taken into the matrix product before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.batchnorm import read_batchnorm
from graphopt_passes.fusion.convolution import narrowed

_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix times a constant matrix, plus a constant row.

    Attributes:
        node: the `Gemm` or `MatMul`, which only one node reads.
        weight: the constant matrix as stored.
        along: the axis of the weight that runs along the columns of the result.
        bias: the row with `beta` in it, in float64; None without one.
    """

    node: Node
    weight: np.ndarray
    along: int
    bias: np.ndarray | None

    @property
    def columns(self) -> int:
        """The number of columns of the result."""
        return int(self.weight.shape[self.along])

    def rebuilt(self, rw: Rewriter, factor: np.ndarray | None, bias: np.ndarray | None) -> Value | Mismatch:
        """A `Gemm` whose weight is scaled by column, with another bias."""
        x, old = self.node.inputs[:2]
        weight: Value | None = old
        if factor is not None:
            by = factor if self.along == 1 else factor.reshape(-1, 1)
            scaled = narrowed(self.weight.astype(np.float64) * by, self.weight.dtype)
            if scaled is None:
                return Mismatch("the new weights leave the range of their element type")
            weight = rw.constant(scaled, like=old)
        row = None
        if bias is not None:
            row = narrowed(bias, self.weight.dtype)
            if row is None:
                return Mismatch("the new bias leaves the range of its element type")
        attrs = {key: value for key, value in self.node.attrs.items() if key != "beta"}
        result: Value = rw.op("Gemm", x, weight, row, **attrs)
        return result


def sole_product(value: Value | None, reader: Node, ops: tuple[str, ...]) -> Product | Mismatch | None:
    """The product that computes `value` for `reader` alone; None when it comes from something else."""
    node = made_by(value, *ops)
    if value is None or node is None:
        return None
    problem = only_reader(value, reader)
    if problem is not None:
        return problem
    x, right, shift = node.input(0), node.input(1), node.input(2)
    weight = right.const() if right is not None else None
    if x is None or right is None or weight is None:
        return Mismatch("the right operand of {} is not constant", value.name)
    if weight.ndim != 2 or right.dtype not in _TYPES:
        return Mismatch("{} is not a matrix that Gemm computes with", right.name)
    if node.op == "MatMul" and x.rank != 2:
        return Mismatch("{} is not known to be a matrix", x.name)
    along = 0 if node.op == "Gemm" and node.attr("transB", 0) else 1
    if shift is None:
        return Product(node, weight, along, None)
    bias = shift.const()
    if bias is None:
        return Mismatch("the bias {} is not constant", shift.name)
    if bias.ndim > 1 and bias.shape[0] != 1:
        return Mismatch("the bias {} is no single row", shift.name)
    row = np.broadcast_to(bias.astype(np.float64).reshape(-1), (weight.shape[along],))
    return Product(node, weight, along, row * node.attr("beta", 1.0))


def _row(constant: np.ndarray, columns: int) -> np.ndarray | None:
    """A constant that broadcasts over the rows of a matrix, as one number per column."""
    if constant.ndim > 2 or (constant.ndim == 2 and constant.shape[0] != 1):
        return None
    flat = constant.astype(np.float64).reshape(-1)
    if len(flat) not in (1, columns) or not np.isfinite(flat).all():
        return None
    return np.broadcast_to(flat, (columns,))


class FuseBnIntoGemm(OpRule):
    """Let a `Gemm` with constant weights do what the batch normalization after it does."""

    name = "fuse_bn_into_gemm"
    ops = ("BatchNormalization",)
    opsets = "9-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FuseBatchNormIntoGemm", "onnxslim": "FusionGemm"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Scale the columns and shift the bias."""
        return _fuse_batchnorm(node, ("Gemm",), rw)


class FuseBnIntoMatmul(OpRule):
    """Join a product with a constant matrix and the batch normalization of its columns into one `Gemm`."""

    name = "fuse_bn_into_matmul"
    ops = ("BatchNormalization",)
    opsets = "9-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "MatMul_BatchNormalization_Fusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Scale the columns and add the shift as bias."""
        return _fuse_batchnorm(node, ("MatMul",), rw)


def _fuse_batchnorm(node: Node, ops: tuple[str, ...], rw: Rewriter) -> Outcome:
    product = sole_product(node.input(0), node, ops)
    if not isinstance(product, Product):
        return product
    affine = read_batchnorm(node)
    if isinstance(affine, Mismatch):
        return affine
    factor, offset = affine
    if len(factor) != product.columns:
        return Mismatch("{} statistics for {} columns", len(factor), product.columns)
    bias = offset if product.bias is None else product.bias * factor + offset
    fused = product.rebuilt(rw, factor, bias)
    return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])


class FuseMulIntoGemm(OpRule):
    """Multiply the weights of a `Gemm` by the constants that its result is multiplied or divided by.

    One number per column, or one for all, on either side of `Mul`, or below in `Div`.
    """

    name = "fuse_mul_into_gemm"
    ops = ("Mul", "Div")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxslim": "FusionGemmMul"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Scale the columns and the bias."""
        found = _operands(node)
        if not isinstance(found, tuple):
            return found
        product, factor, is_left = found
        if node.op == "Div":
            if not is_left or not factor.all():
                return Mismatch("the product is what is divided by, or is divided by zero")
            factor = 1.0 / factor
        fused = product.rebuilt(rw, factor, None if product.bias is None else product.bias * factor)
        return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])


class FuseAddBiasIntoGemm(OpRule):
    """Let a `Gemm` add the constant row that is added to, or subtracted from, its result."""

    name = "fuse_add_bias_into_gemm"
    ops = ("Add", "Sub")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxslim": "FusionGemmAdd", "onnxruntime": "GemmSumFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add the constant to the bias."""
        found = _operands(node)
        if not isinstance(found, tuple):
            return found
        product, row, is_left = found
        if node.op == "Sub":
            if not is_left:
                return Mismatch("the product is what is subtracted")
            row = -row
        fused = product.rebuilt(rw, None, row if product.bias is None else product.bias + row)
        return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])


def _operands(node: Node) -> tuple[Product, np.ndarray, bool] | Mismatch | None:
    left, right = node.input(0), node.input(1)
    for value, other, is_left in ((left, right, True), (right, left, False)):
        if value is None or other is None or value.producer is None or value.producer.op != "Gemm":
            continue
        constant = other.const()
        if constant is None:
            return Mismatch("{} is not constant", other.name)
        product = sole_product(value, node, ("Gemm",))
        if not isinstance(product, Product):
            return product
        row = _row(constant, product.columns)
        if row is None:
            return Mismatch("{} has shape {}, not one finite number per column", other.name, constant.shape)
        return product, row, is_left
    return None
