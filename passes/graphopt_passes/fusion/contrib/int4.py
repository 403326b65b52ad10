"""Products with constant matrices of 4-bit integers."""

from __future__ import annotations

from math import gcd

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.float_products import numbers_added, row_added
from graphopt_passes.fusion.contrib.limits import is_quantized
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES, OnIntegers, check_float, in_runtime
from graphopt_passes.fusion.contrib.parameters import BYTES, check_not_tied

_LARGEST, _SMALLEST = 256, 16
"""The largest block that is written if each column has one scale, and the smallest that the kernel takes. From 32 on
all sizes took the same time, and the scales of blocks of 32 would be a quarter of the weights."""


class FuseInt4IntoMatmul(OnIntegers):
    """Replace a product by a constant matrix of dequantized 4-bit integers with `MatMulNBits`.

    `DequantizeLinear` writes the whole matrix as floats in each run: for 768x768, one thread took 1234 us with it and
    65 without for one row, 1.56 and 0.90 ms for 64. The rows stay floats, while the runtime's own fusion quantizes
    them, too. For blocks of 16, 32, 64, ... rows, and for one scale per column or per tensor. The matrix may be stored
    transposed, as model builders do.
    """

    # No pattern: the operator and the scales have several forms.
    ops = ("Gemm", "MatMul", "com.microsoft::FusedMatMul")
    sources = ("DequantizeLinear",)
    opsets = f"21-{NEWEST_OF_BYTES}"
    numerics = Numerics.ROUNDING
    peers = {"onnxruntime": "QDQSelectorActionTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        dequantize, turned = taken_by_kernel(node), bool(node.attr("transB", 0))
        stored = dequantize.operand(0)
        integers = stored.array().astype(np.int16)
        rows = integers if turned else integers.T
        block, scales, zeros = _blocks(dequantize, rows.shape, turned)
        middle = 8 if stored.dtype == TensorProto.INT4 else 0
        packed = pairs(rows + middle).reshape(len(rows), -1, block // 2)
        weight = rw.constant(packed, like=stored), rw.constant(scales.reshape(-1), like=dequantize.operand(1))
        middles: Value | None = None  # a zero point that is not given is 8
        if (zeros + middle != 8).any():
            middles = rw.constant(pairs(zeros + middle).reshape(-1), like=dequantize.input(2))
        outputs, inner = rows.shape
        sizes = {"K": inner, "N": outputs, "bits": 4, "block_size": block}
        inputs = node.operand(0), *weight, middles, None, row_added(node, outputs, rw)
        made = rw.op("MatMulNBits", *inputs, domain=DOMAIN, **sizes)
        return rw.replace(node, [made])


def taken_by_kernel(product: Node) -> Node:
    """The `DequantizeLinear` of the matrix of a product; declines if the kernel does not take the product."""
    x, dequantize = product.operand(0), product.operand(1).sole_source("DequantizeLinear", reader=product)
    stored = dequantize.operand(0)
    if stored.dtype not in (TensorProto.INT4, TensorProto.UINT4):
        raise Decline
    if (x.rank or 0) < 2 or not in_runtime("MatMulNBits"):
        raise Decline("{} is not known to have rank 2 or more, or the runtime has no MatMulNBits", x.name)
    check_float(product.result)
    _check_plain(product)
    _check_not_of_bytes(product, dequantize)
    shape, turned = stored.array().shape, bool(product.attr("transB", 0))
    if len(shape) != 2 or 0 in shape:
        raise Decline("{} is not a matrix", stored.name)
    check_not_tied(stored, product)
    columns = shape if turned else shape[::-1]
    _blocks(dequantize, columns, turned)
    numbers_added(product, columns[0])
    return dequantize


def _check_plain(node: Node) -> None:
    """Decline if a `FusedMatMul` does more than read the matrix transposed."""
    if node.op == "com.microsoft::FusedMatMul" and (
        node.attr("alpha", 1.0) != 1.0 or any(node.attr(flag, 0) for flag in ("transA", "transBatchA", "transBatchB"))
    ):
        raise Decline("alpha is not 1, or transA is set")


def _check_not_of_bytes(product: Node, dequantize: Node) -> None:
    """Decline if the integers are multiplied with bytes, and the sums quantized: there is a kernel for that."""
    x = product.operand(0).made_by("DequantizeLinear")
    if x is None or x.operand(0).dtype not in BYTES or not is_quantized(product.result):
        return
    one_zero = len(set(dequantize.array(2, np.zeros(1)).reshape(-1).tolist())) == 1
    if one_zero and not dequantize.attr("block_size", 0):
        raise Decline("{} and its operand are both quantized", product.result.name)


def _blocks(node: Node, shape: tuple[int, ...], turned: bool) -> tuple[int, np.ndarray, np.ndarray]:
    """How many numbers of a column share one scale, and the scales and zero points of each column."""
    outputs, inner = shape
    axis, size = int(node.attr("axis", 1)) % 2, int(node.attr("block_size", 0))
    block = size or gcd(inner, _LARGEST)
    if block < _SMALLEST or block & (block - 1) or inner % block:
        raise Decline("columns of {} elements do not consist of blocks of {} that the kernel supports", inner, block)
    scales = node.operand(1).array()
    zeros = node.array(2, np.zeros(scales.shape)).astype(np.int16)
    if bool(size) == (axis == (0 if turned else 1)) and scales.size > 1:
        raise Decline("the scales of {} vary along another axis", node.result.name)
    sizes = outputs, inner // block
    each = [_by_columns(part, blocks=bool(size), turned=turned) for part in (scales, zeros)]
    shapes = {part.shape for part in each}
    if scales.dtype != np.float32 or len(shapes) > 1 or not shapes <= {sizes, (outputs, 1), (1, 1)}:
        raise Decline("the scales and zero points of {} are not float32 and per column", node.result.name)
    wide = [np.ascontiguousarray(np.broadcast_to(part, sizes)) for part in each]
    return block, wide[0], wide[1]


def _by_columns(given: np.ndarray, *, blocks: bool, turned: bool) -> np.ndarray:
    """Scales or zero points, with one row per column of the matrix."""
    if not blocks:
        return given.reshape(-1, 1)
    return given if turned else given.T


def pairs(numbers: np.ndarray) -> np.ndarray:
    """4-bit numbers along the last axis packed into bytes, the first of two in the lower half."""
    if numbers.ndim != 2:
        raise Decline("an array of shape {} is no matrix of 4-bit numbers", numbers.shape)
    even = np.pad(numbers, ((0, 0), (0, numbers.shape[-1] % 2)))
    return np.asarray(even[:, ::2] | even[:, 1::2] << 4, np.uint8)
