"""Products of values that are dequantized from 16-bit integers."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Dim, Node, Numerics, Outcome, Rewriter
from graphopt_passes.fusion.contrib.float_products import row_added, turned_matrix
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES, OnIntegers, check_float
from graphopt_passes.fusion.contrib.parameters import WORDS, Quantized, check_not_tied, dequantized, with_other_sign
from graphopt_passes.fusion.contrib.quantized import check_range, taken

_SMALLEST, _SHORTEST = 2**16, 128
"""The least elements of a matrix, and of a column, at which two integer products take less time than one of floats."""
_MIDDLE = 1 << 15
"""The offset from signed to unsigned 16-bit integers."""


class ConvertWordMatmulToBytes(OnIntegers):
    """Replace a product of 16-bit integers and a constant 8-bit matrix with products of their upper and lower bytes.

    `(x - z) W = 256 (x_upper - z_upper) W + (x_lower - z_lower) W`. No kernel multiplies 16-bit integers; a product of
    floats needs the matrix as floats, which is four times as large. Integer sums are exact, and the sum of the two
    products has smaller rounding errors than one of floats. One thread took 0.20 ms instead of 0.69 for a row of 2048
    and 4096 columns, 2.8 instead of 5.8 for 64 rows. The runtime quantizes the rows to 8 bits instead. The weights must
    be signed, whose kernel takes half the time of that for unsigned ones, on processors that accumulate in 32 bits.

    `Options(extra={"convert_word_matmul_to_bytes": {"force": True}})` converts products with matrices of any size.
    """

    # No pattern: the operator and its bias have several forms.
    ops = ("Gemm", "MatMul")
    sources = ("DequantizeLinear",)
    opsets = f"21-{NEWEST_OF_BYTES}"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, given = dequantized(node.operand(0)), dequantized(node.operand(1))
        if x.dtype not in WORDS:
            raise Decline
        check_float(node.result)
        if not x.is_whole or x.value.is_const or (x.value.rank or 0) < 2:
            raise Decline("{} is not known to be quantized per tensor and of rank 2 or more", x.value.name)
        array, turned = given.value.array(), int(node.attr("transB", 0))
        if array.ndim != 2 or not array.size:
            raise Decline("{} is not a matrix", given.value.name)
        if not (rw.options.forces(self.name) or is_large(array.shape, turned)):
            raise Decline("{} is small: already fast", given.value.name)
        check_not_tied(given.value, node)
        halves = _halves(x, rw)
        signed = with_other_sign(given, rw) if given.dtype == TensorProto.UINT8 else given
        weight = taken(node, halves[0], signed, 1 - turned, rw)
        if weight.dtype != TensorProto.INT8:
            raise Decline("the processor accumulates products with {} in 16 bits, which may overflow", given.value.name)
        for half in halves:
            check_range(half, weight, None, (turned,))
        if turned:
            weight = turned_matrix(weight, rw)
        b, b_scale, b_zero = weight.read(rw)
        row = row_added(node, weight.value.sizes()[1], rw)
        sums = []
        for half, added in zip(halves, (None, row), strict=True):
            scale, zero = (rw.constant(each.reshape(())) for each in (half.scale, half.zero))
            inputs = half.value, b, scale, b_scale, zero, b_zero, added
            sums.append(rw.op("MatMulIntegerToFloat", *inputs, domain=DOMAIN))
        return rw.replace(node, [rw.op("Add", *sums)])


def is_large(shape: tuple[Dim, ...], turned: int) -> bool:
    """Whether a constant matrix is large enough for two integer products to take less time than one of floats."""
    sizes = [size for size in shape if isinstance(size, int)]
    return len(sizes) == len(shape) == 2 and prod(sizes) >= _SMALLEST and sizes[turned] >= _SHORTEST


def _halves(x: Quantized, rw: Rewriter) -> tuple[Quantized, Quantized]:
    """The upper and lower bytes of 16-bit integers and their zero point; signed integers are shifted up by 2^15."""
    integers, zero = x.value, int(x.zero.item())
    if x.dtype == TensorProto.INT16:
        bits = rw.op("Cast", integers, to=TensorProto.UINT16)
        integers, zero = rw.op("BitwiseXor", bits, rw.constant(np.array(_MIDDLE, np.uint16))), zero + _MIDDLE
    wide = rw.op("Cast", integers, to=TensorProto.UINT32)  # ONNX Runtime 1.30 shifts no integers of 16 bits
    upper = rw.op("BitShift", wide, rw.constant(np.array(8, np.uint32)), direction="RIGHT")
    parts = (upper, x.scale * np.float32(256), zero >> 8), (integers, x.scale, zero & 255)
    high, low = (
        Quantized(
            rw.op("Cast", value, to=TensorProto.UINT8), scale, np.array([start], np.uint8), TensorProto.UINT8, None,
            (x.given[0], None),
        )
        for value, scale, start in parts
    )  # fmt: skip
    return high, low
