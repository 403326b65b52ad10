"""Properties of `QuantizeLinear` and `DequantizeLinear` over all opsets, and of the parameters of `QLinearConv`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node

_SINGLES = (0, TensorProto.FLOAT)
_BYTES = (TensorProto.UINT8, TensorProto.INT8)


def is_in_singles(node: Node) -> bool:
    """Whether an operator with a float32 scale computes in float32, and dequantizes to float32.

    Since opset 23, `precision` and `output_dtype` may state another type.
    """
    other_result = node.op_type == "DequantizeLinear" and node.attr("output_dtype", 0) not in _SINGLES
    return node.attr("precision", 0) in _SINGLES and not other_result


def reads_stored_bytes(node: Node) -> bool:
    """Whether a node alone reads a constant of bytes, dequantized in the same graph per tensor or along an axis.

    What it moves can be moved in the constant then, so that kernels on bytes find it as they need it.
    """
    value = node.operand(0)
    source = value.made_by("DequantizeLinear")
    if source is None or source.graph is not node.graph or not value.one_use:
        return False
    stored = source.operand(0)
    return stored.is_const and stored.one_use and stored.dtype in _BYTES and source.operand(1).rank in (0, 1)


_OPERANDS, _OF_CHANNELS, _BIAS = (0, 3), (4, 5), 8


def check_parameters(convolution: Node, weight: np.ndarray) -> None:
    """Check that the operands of a `QLinearConv` match its weight, which inference does not check.

    Raises:
        Decline: its data has another rank, a constant scale or zero point is neither per tensor nor per channel of the
            weight, or the bias is not per channel.
    """
    x, channels = convolution.operand(0), len(weight)
    if x.rank not in (None, weight.ndim):
        raise Decline("{} has rank {}, not that of the weight", x.name, x.rank)
    for at, value in enumerate(convolution.inputs):
        if value is None or not value.is_const or at in _OPERANDS:
            continue
        one = () if at == _BIAS else ((), (1,))
        each = ((channels,),) if at == _BIAS or at in _OF_CHANNELS else ()
        if value.shape not in (*one, *each):
            raise Decline(
                "{} has shape {}, expected a scalar or one number for each of {} channels",
                value.name,
                value.shape,
                channels,
            )
