"""Products of integers of 16 bits at the ends of their range are the sums in doubles."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt import Options, PassManager
from graphopt.system.sessions import open_session


@pytest.mark.parametrize("zero", ["min", "max", "middle"])
@pytest.mark.parametrize("kind", [np.uint16, np.int16])
def test_ends_of_the_range(kind: type[np.integer], zero: str) -> None:
    ends, random = np.iinfo(kind), np.random.default_rng(0)
    start = {"min": ends.min, "max": ends.max, "middle": (ends.min + ends.max) // 2 + 77}[zero]
    weights = random.integers(-64, 64, (96, 5)).astype(np.int8)
    name = np.dtype(kind).name
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g ({name}[4,96] x) => (float[4,5] y) <float s = {{0.5}}, float t = {{0.25}}>
    {{ a = DequantizeLinear (x, s, z)  w = DequantizeLinear (m, t)  y = MatMul (a, w) }}""")
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.array(start, kind), "z"), numpy_helper.from_array(weights, "m")]
    )
    options = Options(extra={"convert_word_matmul_to_bytes": {"force": True}})
    result = PassManager(passes="convert_word_matmul_to_bytes", options=options).run(model).model
    assert "MatMulIntegerToFloat" in {node.op_type for node in result.graph.node}
    x = random.integers(ends.min, ends.max, (4, 96), endpoint=True).astype(kind)
    x[:3] = np.array([[ends.min], [ends.max], [start]], kind)
    wanted = (x.astype(np.float64) - start) @ weights * 0.125
    np.testing.assert_allclose(
        open_session(result).run(None, {"x": x})[0], wanted, rtol=0, atol=2e-7 * abs(wanted).max()
    )
