"""Weights that are stored in integers and read in floats: what the golden cases would be too large for."""

import onnx

from graphopt import Options, PassManager

_MODEL = """<ir_version: 9, opset_import: ["" : 17]>
g (float[3,4] x) => (float[3,2] y) <int8[4,2] c = {3, -100, 127, 50, 1, 2, -3, -4}, float s = {0.003}>
{ d = DequantizeLinear (c, s) y = MatMul (x, d) }"""


def test_weights_stay_integers_beyond_what_folding_may_make() -> None:
    left = []
    for limit in (31, 32):
        manager = PassManager(passes="fold_dequantized_weights", options=Options(max_folded_bytes=limit))
        left.append([node.op_type for node in manager.run(onnx.parser.parse_model(_MODEL)).model.graph.node])
    assert left == [["DequantizeLinear", "MatMul"], ["MatMul"]]
