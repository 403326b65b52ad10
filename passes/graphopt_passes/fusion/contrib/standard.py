"""Contrib operators that the standard has as well."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.rewrite import Decline, Level, Node, Outcome, Rewriter
from graphopt_passes.fusion.contrib.operands import DOMAIN, ONE, OnIntegers

_SINCE_TEN = (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32)
_AXES_SINCE, _ANY_SINCE = 13, 21
"""The opsets that introduced scales along an axis, and integers of 4 and 16 bits."""


class ReplaceContribQuantization(OnIntegers):
    """Replace `QuantizeLinear` and `DequantizeLinear` of `com.microsoft` with the standard's, if it has their types.

    The kernels are the same. Quantizers write the former throughout a model of which a part has 16 bits, and more
    passes apply to the latter.
    """

    # No pattern: the parameters have several forms.
    ops = (f"{DOMAIN}::QuantizeLinear", f"{DOMAIN}::DequantizeLinear")
    level = Level.BASIC

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value, opset = node.result if node.op_type == "QuantizeLinear" else node.operand(0), rw.graph.opset()
        scale, zero = node.operand(1), node.input(2)
        dtype = value.dtype if zero is None else zero.dtype
        if scale.dtype != TensorProto.FLOAT:
            raise Decline("{} is not known to be float32", scale.name)
        if opset < _ANY_SINCE and dtype not in _SINCE_TEN:
            raise Decline("{} is not known to have a quantized type of opset {}", value.name, opset)
        if opset < _AXES_SINCE and scale.shape not in ONE:
            raise Decline("per-axis scales require opset {}, but the model has opset {}", _AXES_SINCE, opset)
        return rw.replace(node, [rw.op(node.op_type, *node.inputs, **node.attrs)])
