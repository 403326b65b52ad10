"""Products of dequantized values whose results are floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.limits import is_quantized
from graphopt_passes.fusion.contrib.operands import DOMAIN, OnIntegers, check_float
from graphopt_passes.fusion.contrib.parameters import Quantized, check_not_tied, dequantized
from graphopt_passes.fusion.contrib.quantized import check_range, taken


class FuseDequantizeIntoMatmul(OnIntegers):
    """Replace a product of dequantized unsigned bytes by a constant matrix of bytes with `MatMulIntegerToFloat`.

    For products whose results are not quantized, like the last one of a network or one before a `Softmax`; a `Gemm`
    counts as one. The bytes may be those of `DynamicQuantizeLinear`. Sums are exact then. One thread took 13 us instead
    of 106 for a row of 768 and 768 columns, 0.8 ms instead of 3.0 for 512 rows. The kernel for signed bytes is slower
    than that of floats. A matrix of more than 64 KiB with other readers, such as an embedding, is not stored a second
    time in another form.
    """

    # No pattern: the operator and its bias have several forms.
    ops = ("Gemm", "MatMul")
    sources = ("DequantizeLinear",)
    numerics = Numerics.ROUNDING
    finite = True
    """With an infinite input all sums are NaN, where sums of floats may be infinite."""
    peers = {"onnxruntime": "QDQSelectorActionTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, given = _rows(node.operand(0)), dequantized(node.operand(1))
        check_float(node.result)
        if is_quantized(node.result):
            raise Decline("the result {} is quantized", node.result.name)
        if x.dtype != TensorProto.UINT8 or (x.value.rank or 0) < 2:
            raise Decline("{} is not known to be uint8 of rank 2 or more", x.value.name)
        array, turned = given.value.array(), int(node.attr("transB", 0))
        if array.ndim != 2 or not array.size:
            raise Decline("{} is not a matrix", given.value.name)
        weight = taken(node, x, given, 1 - turned, rw)
        check_range(x, weight, None, (turned,))
        if weight.value is not given.value or turned:
            check_not_tied(given.value, node)
        if turned:
            weight = turned_matrix(weight, rw)
        (a, a_scale, a_zero), (b, b_scale, b_zero) = x.read(rw), weight.read(rw)
        if a_scale.made_by("DynamicQuantizeLinear"):  # an infinite scale becomes NaN, as 0 times infinity in float sums
            a_scale = rw.op("Add", a_scale, rw.op("Sub", a_scale, a_scale))
        inputs = (a, b, a_scale, b_scale, a_zero, b_zero, row_added(node, weight.value.sizes()[1], rw))
        return rw.replace(node, [rw.op("MatMulIntegerToFloat", *inputs, domain=DOMAIN)])


def _rows(value: Value) -> Quantized:
    """The quantized form of the rows of a product.

    For `DynamicQuantizeLinear`, whose outputs hold scale and zero point, it states any scale and the farthest zero.
    """
    node = value.made_by("DequantizeLinear")
    if not node or not (dynamic := node.operand(0).made_by("DynamicQuantizeLinear")):
        return dequantized(value)
    integers, *given = node.operands
    if given != dynamic.outputs[1:] or any(each.shape != () for each in given):
        raise Decline("{} is not dequantized with the scale and zero point that it was quantized with", integers.name)
    scale, zero = given
    return Quantized(integers, np.ones(1, np.float32), np.zeros(1, np.uint8), TensorProto.UINT8, None, (scale, zero))


def turned_matrix(weight: Quantized, rw: Rewriter) -> Quantized:
    """A transposed matrix, whose scales then vary along the other axis."""
    value = rw.constant(np.ascontiguousarray(weight.value.array().T), like=weight.value)
    return replace(weight, value=value, axis=None if weight.axis is None else 1 - weight.axis)


def row_added(node: Node, columns: int, rw: Rewriter) -> Value | None:
    """The bias of a `Gemm`, which must be one number per column; None if there is none."""
    row = numbers_added(node, columns)
    return None if row is None else rw.constant(row, like=node.input(2))


def numbers_added(node: Node, columns: int) -> np.ndarray | None:
    """The numbers of the constant that `row_added` makes."""
    if node.op != "Gemm":
        return None
    if node.attr("alpha", 1.0) != 1.0 or node.attr("transA", 0):
        raise Decline("alpha is not 1, or transA is set")
    bias = node.input(2)
    if bias is None:
        return None
    if node.attr("beta", 1.0) != 1.0:
        raise Decline("beta, which scales {}, is not 1", bias.name)
    stored = dequantized(bias) if bias.made_by("DequantizeLinear") else None
    array = bias.array() if stored is None else _numbers(stored)
    if array.shape not in ((columns,), (1, columns)):
        raise Decline("{} does not have one number per column", bias.name)
    return array.reshape(-1).astype(np.float32)


def _numbers(stored: Quantized) -> np.ndarray:
    """The floats that constant integers stand for; the difference of two may not fit into their type."""
    distances = stored.value.array().astype(np.int64) - stored.zero.astype(np.int64)
    return np.asarray(distances * stored.scale)
