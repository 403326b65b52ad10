"""Weights that are stored in integers and read in floats: what the golden cases would be too large for."""

import onnx
import pytest

from graphopt import Options, PassManager
from graphopt_passes.layout import weights_of_floats

_MODEL = """<ir_version: 9, opset_import: ["" : 17]>
g (float[3,4] x) => (float[3,2] y) <int8[4,2] c = {3, -100, 127, 50, 1, 2, -3, -4}, float s = {0.003}>
{ d = DequantizeLinear (c, s) y = MatMul (x, d) }"""


def test_weights_stay_integers_beyond_what_folding_may_make() -> None:
    left = []
    for limit in (31, 32):
        manager = PassManager(passes="fold_dequantized_weights", options=Options(max_folded_bytes=limit))
        left.append([node.op_type for node in manager.run(onnx.parser.parse_model(_MODEL)).model.graph.node])
    assert left == [["DequantizeLinear", "MatMul"], ["MatMul"]]


def test_weights_stay_integers_where_all_of_them_would_be_more_than_a_file_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Networks of language have hundreds of weights each of which is small enough."""
    text = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[3,32] x) => (float[3,2] y, float[3,2] z)
    <int8[32,2] c, float s = {0.003}, uint8[2,2,16] w, float[4] t = {1, 2, 3, 4}> {
      d = DequantizeLinear (c, s) y = MatMul (x, d)
      z = com.microsoft.MatMulNBits <K = 32, N = 2, bits = 8, block_size = 16> (x, w, t)
    }"""
    model = onnx.parser.parse_model(
        text.replace("[32,2] c", f"[32,2] c = {{{', '.join('1' * 64)}}}").replace(
            "[2,2,16] w", f"[2,2,16] w = {{{', '.join('1' * 64)}}}"
        )
    )
    made = []
    for most in (511, 512):
        monkeypatch.setattr(weights_of_floats, "_MOST", most)
        result = PassManager(passes="fold_dequantized_weights, convert_matmul_of_bytes").run(model)
        made.append([node.op_type for node in result.model.graph.node])
    assert made == [["DequantizeLinear", "MatMul", "MatMulNBits"], ["MatMul", "MatMul"]]


def test_large_weights_stay_integers_where_all_of_them_would_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]>
    g (float[3,4] x) => (float[3,4] y)
    <int8[4,2] c = {3, -100, 127, 50, 1, 2, -3, -4}, int8[2,4] b = {1, 2, 3, 4, 5, 6, 7, 8}, int8[4,4] w, float s = {1}>
    {
      d = DequantizeLinear (c, s) p = MatMul (x, d) e = DequantizeLinear (b, s) q = MatMul (p, e)
      f = DequantizeLinear (w, s) y = MatMul (q, f)
    }""".replace("[4,4] w", f"[4,4] w = {{{', '.join('1' * 16)}}}")
    )
    monkeypatch.setattr(weights_of_floats, "_LARGEST", (64, 32))
    left = []
    for most in (63, 64, 127, 128):
        monkeypatch.setattr(weights_of_floats, "_MOST", most)
        result = PassManager(passes="fold_dequantized_weights").run(model)
        left.append([node.op_type for node in result.model.graph.node].count("DequantizeLinear"))
    assert left == [3, 1, 1, 0]
