"""What is true of `QuantizeLinear` and `DequantizeLinear` at every opset, and of the parameters of `QLinearConv`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node

_SINGLES = (0, TensorProto.FLOAT)


def is_in_singles(node: Node) -> bool:
    """Whether a float32 scale makes the operator divide, or multiply, in float32, and a dequantized value is float32.

    Since opset 23 a `precision` may say otherwise, and a type for what is dequantized.
    """
    other_result = node.op_type == "DequantizeLinear" and node.attr("output_dtype", 0) not in _SINGLES
    return node.attr("precision", 0) in _SINGLES and not other_result


_OPERANDS, _OF_CHANNELS, _BIAS = (0, 3), (4, 5), 8


def check_parameters(convolution: Node, weight: np.ndarray) -> None:
    """See that the operands of a `QLinearConv` go with its weight, for inference does not look at them.

    Raises:
        Decline: what it reads has another rank, a constant scale or zero point is neither one number nor one for each
            channel of the weight, or the bias not one for each.
    """
    x, channels = convolution.operand(0), len(weight)
    if x.rank not in (None, weight.ndim):
        raise Decline("{} has rank {}", x.name, x.rank)
    for at, value in enumerate(convolution.inputs):
        if value is None or not value.is_const or at in _OPERANDS:
            continue
        one = () if at == _BIAS else ((), (1,))
        each = ((channels,),) if at == _BIAS or at in _OF_CHANNELS else ()
        if value.shape not in (*one, *each):
            raise Decline("{} of shape {} is no parameter of {} channels", value.name, value.shape, channels)
