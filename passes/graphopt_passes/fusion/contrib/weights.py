"""Weights of integer products as signed or unsigned bytes, whichever has the faster kernels on x86."""

from __future__ import annotations

from functools import partial

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, Outcome, Rewriter, Value
from graphopt.system.machine import Target
from graphopt_passes.fusion.contrib.operands import OnIntegers
from graphopt_passes.fusion.contrib.parameters import other_bytes
from graphopt_passes.fusion.contrib.sums import is_depthwise, rows_of, sums_bytes_exactly

_SIGNED = {
    "MatMulInteger": (0, 1, 3), "QLinearConv": (0, 3, 5), "QLinearMatMul": (0, 3, 5),
    "com.microsoft::DynamicQuantizeMatMul": (None, 1, 3), "com.microsoft::MatMulIntegerToFloat": (0, 1, 5),
    "com.microsoft::QGemm": (0, 3, 5), "com.microsoft::QLinearConv": (0, 3, 5),
}  # fmt: skip
"""Operators that are faster with signed weights: the inputs of the left operand, the weight and its zero point.

Products of unsigned with signed bytes have instructions of their own, 2 to 3 times as fast.
"""
_UNSIGNED = {"ConvInteger": (0, 1, 3)}
"""Operators that are faster with unsigned weights: in this kernel the weight is the left operand, and 6 to 13 times as
slow if it is signed."""
_SCALES = {"com.microsoft::DynamicQuantizeMatMul": 2, "com.microsoft::MatMulIntegerToFloat": 3}
"""The input of the weight's scale, for operators whose zero point may be left out and must have the scale's shape."""


class ConvertQuantizedWeights(OnIntegers):
    """Convert constant weights of integer products to the faster type of bytes, moving the zero point by 128.

    Signed weights for unsigned activations, on x86 with instructions for such products, or where no pair of them
    overflows 16 bits; unsigned ones for `ConvInteger`, for signed images only with these instructions. The sums stay
    the same.
    """

    # No pattern: one operand of one operator, at an input that a table states.
    ops = (*_SIGNED, *_UNSIGNED)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        signed = node.op in _SIGNED
        left, right, zero = (_SIGNED if signed else _UNSIGNED)[node.op]
        weight = node.operand(right)
        _check(node, left, weight, signed=signed, rw=rw)
        inputs = [*node.inputs, *[None] * (zero + 1 - len(node.inputs))]
        inputs[right] = rw.constant(other_bytes(weight.array()), like=weight)
        inputs[zero] = _moved_zero(node, zero, np.uint8 if signed else np.int8, rw)
        return rw.replace(node, [rw.again(node, *inputs)])


def _check(node: Node, left: int | None, weight: Value, *, signed: bool, rw: Rewriter) -> None:
    """Decline unless the other type of bytes is faster, and exact; silently if the weight has that type already."""
    target = rw.target
    if weight.dtype != (TensorProto.UINT8 if signed else TensorProto.INT8):
        raise Decline
    if not target.is_x86:
        raise Decline("the target is not x86, for which the kernels were measured")
    if signed and left is not None and node.operand(left).dtype != TensorProto.UINT8:
        raise Decline("{} is not known to be uint8", node.operand(left).name)
    if not _sums_exactly(node, left, weight, signed=signed, target=target):
        raise Decline("the processor accumulates products with int8 in 16 bits, which may overflow")


def _sums_exactly(node: Node, left: int | None, weight: Value, *, signed: bool, target: Target) -> bool:
    """Whether the sums stay the same: unsigned weights with a signed image are mixed products, too."""
    if not signed:
        image = None if left is None else node.operand(left).dtype
        return image == TensorProto.UINT8 or sums_bytes_exactly(None, target)
    weights = other_bytes(weight.array())
    if node.op_type == "QLinearConv" and is_depthwise(int(node.attr("group", 1)), weights.shape):
        return True
    return sums_bytes_exactly(weights, target, partial(rows_of, node))


def _moved_zero(node: Node, at: int, dtype: type[np.uint8] | type[np.int8], rw: Rewriter) -> Value:
    """The zero point moved by 128; where none is given it is 0, in the shape of the weight's scale."""
    zero = node.input(at)
    if zero is not None:
        return rw.constant(other_bytes(zero.array()), like=zero)
    shape = node.operand(_SCALES[node.op]).sizes() if node.op in _SCALES else ()
    if len(shape) > 1:
        raise Decline("zero points have shape {}, expected rank 0 or 1", shape)
    return rw.constant(other_bytes(np.zeros(shape, dtype)))
