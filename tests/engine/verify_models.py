"""Small models for the tests of the oracle."""

from __future__ import annotations

import onnx
from onnx import helper


def parse(body: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{body}')


def graph(signature: str, *lines: str, opset: int = 17) -> onnx.ModelProto:
    return parse(f"g {signature} {{ {' '.join(lines)} }}", opset)


def model(nodes, inputs, outputs, initializers=(), *, opset=17, ir_version=9, **kwargs):
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, list(initializers)),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
        **kwargs,
    )


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)
