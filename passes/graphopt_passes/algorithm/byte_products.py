"""Quantized matrix products with a constant matrix, computed by the convolution kernel."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES, ONE
from graphopt_passes.fusion.contrib.parameters import check_not_tied

_GEMM = f"{DOMAIN}::QGemm"
_RANK = 4
"""The rank of an image."""


class ConvertByteProductToConvolution(Weighed, OpRule):
    """Replace quantized products with a constant matrix with a 1x1 `QLinearConv`, channels last.

    The sums are the same and take the same time; the convolution kernel requantizes them faster.
    """

    ops = (_GEMM, "QLinearMatMul")
    opsets = f"11-{NEWEST_OF_BYTES}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if not rw.target.is_x86:
            raise Decline("the target is not x86, for which the kernels were measured")
        x, matrix = node.operand(0), node.operand(3)
        tensor = matrix.constant_tensor
        if tensor is None or len(tensor.dims) != 2 or 0 in tensor.dims:
            raise Decline("{} is not a constant matrix", matrix.name)
        if x.dtype != TensorProto.UINT8:
            raise Decline("{} is not known to be uint8", x.name)
        check_not_tied(matrix, node)
        axes = _added(x)
        gemm = node.op == _GEMM
        if gemm and (node.input(7) is None or node.attr("transA", 0) or node.attr("alpha", 1.0) != 1.0):
            raise Decline("alpha is not 1, transA is set, or the result is not quantized")
        bias, scale, zero = (node.input(6), 7, 8) if gemm else (None, 6, 7)
        _check_zeros(node, zero)
        weight = matrix.array() if gemm and node.attr("transB", 0) else matrix.array().T
        outputs = len(weight)
        rows = [_row(node.operand(at), outputs) for at in (4, 5)]
        written, images = size_of(node.result), 1 if axes and axes[0] == 0 else count(x.dims()[:1])
        self.weigh(rw, {"bytes of gemm" if gemm else "bytes of product": written}, {"kernel": 1 + images})
        kernel = rw.constant(np.ascontiguousarray(weight)[:, :, None, None], like=matrix)
        image = rw.op("Unsqueeze", x, axes=axes) if axes else x
        inputs = [image, *node.inputs[1:3], kernel, *rows, node.operand(scale), node.operand(zero)]
        if bias is not None:
            inputs.append(rw.constant(_bias(bias, outputs), like=bias))
        made = rw.op("QLinearConv", *inputs, domain=DOMAIN, channels_last=1)
        return rw.replace(node, [rw.op("Squeeze", made, axes=axes) if axes else made])


def _added(x: Value) -> tuple[int, ...]:
    """The axes that `Unsqueeze` adds to make an image of the rows.

    Only the batch of an image may be empty: of three axes, a first one of unknown size becomes the batch.
    """
    sizes = x.dims()
    if not 2 <= len(sizes) <= _RANK:
        raise Decline("{} does not have rank 2, 3 or 4", x.name)
    inner = sizes[1:-1] if len(sizes) > 2 else sizes[:1]
    if not all(isinstance(size, int) and size > 0 for size in inner):
        raise Decline("{} may be empty", x.name)
    if len(sizes) == 3:
        return (0,) if isinstance(sizes[0], int) and sizes[0] > 0 else (1,)
    return tuple(range(_RANK - len(sizes)))


def _check_zeros(node: Node, zero: int) -> None:
    """Decline unless the matrix has a single zero point, and the rows and the result are quantized per tensor."""
    if any(node.operand(at).sizes() not in ONE for at in (1, 2, zero - 1, zero)):
        raise Decline("the activations or results of {} are not quantized per tensor", node.op)
    points = node.operand(5).array()
    if points.size == 0 or np.any(points != points.flat[0]):
        raise Decline("{} does not hold a single zero point", node.operand(3).name)
    if node.operand(zero).dtype != TensorProto.UINT8:
        raise Decline("{} is not uint8", node.result.name)


def _row(value: Value, outputs: int) -> Value:
    """A scale or zero point of the matrix; declines unless it is per tensor or per column."""
    if value.sizes() not in (*ONE, (outputs,)):
        raise Decline("{} does not have one number per column", value.name)
    return value


def _bias(value: Value, outputs: int) -> np.ndarray:
    array = value.array()
    if prod(array.shape[:-1]) != 1 or array.size not in (1, outputs):
        raise Decline("{} does not have one number per column", value.name)
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (outputs,)))
