"""Networks in bfloat16, which ONNX Runtime does not load: what is made of them computes what the same does in float32."""

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, parser

from graphopt import PassManager
from graphopt.system.sessions import open_session

_TEXT = """<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>
g (float[1,S,16] x, int64[1,S] p) => (float[1,S,16] y) {
  h = Cast <to = 16> (x)
  q = MatMul (h, w)
  r = com.microsoft.RotaryEmbedding <num_heads = 2> (q, p, cosines, sines)
  a = com.microsoft.MultiHeadAttention <num_heads = 2> (r, r, q)
  n = com.microsoft.SkipSimplifiedLayerNormalization (h, a, g)
  z = com.microsoft.MatMulNBits <K = 16, N = 16, bits = 4, block_size = 16> (n, b, s)
  y = Cast <to = 1> (z)
}"""


def _network(kind: np.dtype) -> ModelProto:
    model = parser.parse_model(_TEXT.replace("to = 16", f"to = {onnx.helper.np_dtype_to_tensor_dtype(kind)}"))
    drawn = np.random.default_rng(0)
    for name, shape in {"w": (16, 16), "cosines": (8, 4), "sines": (8, 4), "g": (16,), "s": (16,)}.items():
        rounded = drawn.standard_normal(shape).astype(ml_dtypes.bfloat16).astype(kind)
        model.graph.initializer.append(numpy_helper.from_array(rounded, name))
    model.graph.initializer.append(numpy_helper.from_array(drawn.integers(0, 256, (16, 1, 8), np.uint8), "b"))
    return model


def test_a_network_in_bfloat16_becomes_that_in_float32() -> None:
    single = _network(np.dtype(np.float32))
    made = PassManager(passes="convert_float16_to_float32", target="avx512").run(_network(np.dtype(ml_dtypes.bfloat16)))
    feed = {"x": np.random.default_rng(1).standard_normal((1, 5, 16)).astype(np.float32), "p": np.arange(5)[None]}
    found, wanted = (open_session(model).run(None, feed)[0] for model in (made.model, single))
    assert "Cast" not in {node.op_type for node in made.model.graph.node}
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
