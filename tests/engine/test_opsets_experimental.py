"""Operators that no schema states, which ONNX Runtime runs until opset 9."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt.opsets import ConversionError, convert

NODES = [
    "Affine <alpha = 2.0, beta = 1.0> (x)", "Affine (x)", "Scale <scale = 3.0> (x)",
    "ScaledTanh <alpha = 2.0, beta = 0.5> (x)", "ParametricSoftplus <alpha = 2.0, beta = -0.5> (x)",
    "ImageScaler <scale = 2.0, bias = [1.0, 2.0, 3.0]> (x)", "ImageScaler <bias = [1.0, 2.0, 3.0]> (x)",
    "Crop <border = [1, 2, 0, 1]> (x)", "Crop <border = [1, 1, 0, 0], scale = [2, 3]> (x)",
    "DynamicSlice (x, one, three, one)", "DynamicSlice (x, one, three)",
]  # fmt: skip


def model_of(node: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 4, opset_import: ["" : 8]> g (float[2,3,4,5] x) => (float[a,b,c,d] y)
        <int64[1] one = {{1}}, int64[1] three = {{3}}> {{ y = {node} }}
    """)


@pytest.mark.parametrize("node", NODES)
def test_what_no_newer_opset_has_is_written_out(node: str) -> None:
    model, x = model_of(node), np.linspace(-200, 200, 120, dtype=np.float32).reshape(2, 3, 4, 5)
    x[0, 0, 0] = np.nan, np.inf, -np.inf, 0, -0.0
    expected = run_model(model, {"x": x})
    assert convert(model, opset=9).graph.node[0].op_type == model.graph.node[0].op_type
    for target in (10, 13, 22):
        after = convert(model, opset=target)
        onnx.checker.check_model(after, full_check=True)
        assert differs(expected, run_model(after, {"x": x})) is None, target


@pytest.mark.parametrize(
    "node",
    [
        "Scale <factor = 2.0> (x)",
        "Scale (x, x)",
        "ScaledTanh <alpha = 2.0> (x)",
        "Crop <border = 1> (x)",
        "ImageScaler (x)",
    ],
)
def test_what_only_has_such_a_name_stays_below_opset_10(node: str) -> None:
    assert convert(model_of(node), opset=9).opset_import[0].version == 9
    with pytest.raises(ConversionError, match="it is not the .* removed in opset 10") as found:
        convert(model_of(node), opset=10)
    assert found.value.__cause__ is None
