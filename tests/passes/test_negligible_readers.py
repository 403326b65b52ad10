"""Where larger weights of a row meet zeros, no reader may tell the weights that went from those that were there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphopt
from graphopt.verify.runners import OrtRunner
from graphopt.verify.source import Source

READERS = (
    "y = Abs (c)", "y = Sigmoid (c)", "y = Log (c)", "y = Sqrt (c)", "y = Reciprocal (c)", "y = Sign (c)",
    "y = Hardmax (c)", "y = Softmax (c)", "y = LpNormalization (c)", "y = MeanVarianceNormalization <axes = [0]> (c)",
    "y = Shrink <lambd = 0.0, bias = 1.0> (c)", "y = ReduceLogSum (c, last)", "y = ReduceL2 (c, last)", "y = ArgMax (c)",
    "y, s, z = DynamicQuantizeLinear (c)", "y = Pow (c, half)", "y = Pow (c, two)", "y = Div (two, c)", "y = Unique (c)",
    "a = Abs (c) y = Div (c, a)", "n, y = TopK (c, one)", "y = LayerNormalization <epsilon = 0.0> (c, ones)",
    "y = LayerNormalization (c, ones)", "n = CumSum (c, axis) y = Reciprocal (n)", "b = Cast <to = 9> (c) y = Not (b)",
    "n = Abs (c) m = Add (n, two) y = Log (m)",
)  # fmt: skip


ALLOWED = 8.3e-25
"""The absolute difference that docs/adr/0015-negligible-weights.md states."""


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_tells_the_difference(reader: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[n,2] x) => (y)
    <float[2,2] w = {{5.0, 1.0, 1e-32, -2e-32}}, float half = {{0.5}}, float two = {{2.0}}, int64[1] one = {{1}},
     int64[1] last = {{-1}}, int64 axis = {{1}}, float[2] ones = {{1.0, 1.0}}>
    {{ c = MatMul (x, w) {reader} }}""")
    result = graphopt.optimize(model, passes="eliminate_negligible_weights")
    for x in ([[0, 1]], [[0, 1], [0, -1]], [[0, 0], [0, 1]], [[0, -1]]):
        feed = {"x": np.array(x, np.float32)}
        before, after = (OrtRunner(Source(each, "model")).run(feed)[0] for each in (model, result))
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=ALLOWED)
