"""`QuantizeLinear` and `DequantizeLinear`: what is true of both at every opset."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.ir import Node

_SINGLES = (0, TensorProto.FLOAT)


def is_in_singles(node: Node) -> bool:
    """Whether a float32 scale makes the operator divide, or multiply, in float32, and a dequantized value is float32.

    Since opset 23 a `precision` may say otherwise, and a type for what is dequantized.
    """
    other_result = node.op_type == "DequantizeLinear" and node.attr("output_dtype", 0) not in _SINGLES
    return node.attr("precision", 0) in _SINGLES and not other_result
