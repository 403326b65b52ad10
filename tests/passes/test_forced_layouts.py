"""Layouts of operators that know the shape of what they read, whatever they cost: the model runs, and is as it was."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from graphopt import Options, PassManager
from tests.passes.layout_models import run

_JOINED = """<ir_version: 8, opset_import: ["" : 7]>
g (float[1,8,{dims}] x) => (float[1,1,{dims}] y)
<float[1,8,{dims}] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[1,1,{dims}] c = {{5}}>
{{ a = Conv (x, w)  y = {op} (a, c) }}"""
_POSITIONS = """<ir_version: 8, opset_import: ["" : 7]>
g (float[1,8,3] x) => (float[1,2,3] y)
<float[2,8,1] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}, float[2,3] s = {1, 2, 3, 4, 5, 6}>
{ a = Conv (x, w)  y = BatchNormalization <spatial = 0> (a, s, s, s, s) }"""
_BLOCKS = f"""<ir_version: 10, opset_import: ["" : 21]>
g (uint8[1,8,1,1] x) => (uint8[1,8,1,1] y)
<float s = {{0.1}}, uint8 z = {{3}}, int8 k = {{1}}, float[1,1,1,1] t = {{0.1}}, uint8[1,1,1,1] u = {{3}},
 int8[8,8,1,1] w = {{{", ".join(str(number % 7 - 3) for number in range(64))}}}>
{{
  a = QLinearConv (x, s, z, w, s, k, s, z)
  d = DequantizeLinear <axis = 1, block_size = 8> (a, t, u)
  q = QuantizeLinear <axis = 1, block_size = 8> (d, t, u)
  y = QLinearConv (q, s, z, w, s, k, s, z)
}}"""


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize(("name", "dims"), [("convert_layout_nchwc", "1,1"), ("convert_conv_1d_to_2d", "1")])
def test_operators_that_do_not_broadcast(name: str, dims: str, op: str) -> None:
    assert _is_as_it_was(name, _JOINED.format(dims=dims, op=op))


def test_statistics_of_each_position() -> None:
    assert _is_as_it_was("convert_conv_1d_to_2d", _POSITIONS)


def test_scales_of_blocks() -> None:
    assert _is_as_it_was("convert_layout_nhwc", _BLOCKS)


def _is_as_it_was(name: str, text: str) -> bool:
    """Whether a forced pass does something, and what comes out is the same."""
    model = parser.parse_model(text)
    value = model.graph.input[0].type.tensor_type
    x = np.arange(-3, 21, dtype=np.float32).astype(np.uint8 if value.elem_type == 2 else np.float32)
    shape = [dim.dim_value for dim in value.shape.dim]
    feeds = {"x": x[: int(np.prod(shape))].reshape(shape)}
    result = PassManager(passes=name, options=Options(extra={name: {"force": True}}), strict=True).run(model)
    (wanted,), (found,) = run(model, feeds), run(result.model, feeds)
    return result.changed and wanted.shape == found.shape and bool(np.allclose(found, wanted, rtol=1e-5))
