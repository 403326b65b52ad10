"""`SimplifiedLayerNormalization`, which ONNX Runtime puts into the standard's domain: no checker lets it pass there."""

import numpy as np
from onnx import ModelProto, numpy_helper, parser

from graphopt import PassManager
from graphopt.verify import assert_equivalent

_DECODER = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float16[1,N,4] x) => (float16[1,N,4] y) {
  n = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001, stash_type = 1> (x, g)
  a = MatMul (n, w)
  y = Add (x, a)
}"""


def _decoder(text: str = _DECODER) -> ModelProto:
    model = parser.parse_model(text)
    drawn = np.random.default_rng(0)
    for name, shape in {"g": (4,), "w": (4, 4)}.items():
        array = drawn.standard_normal(shape).astype(np.float16)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_the_first_normalization_of_a_decoder_becomes_float32_with_the_sum_around_it() -> None:
    model = _decoder()
    result = PassManager(passes="convert_float16_to_float32", target="avx512").run(model)
    ops = [node.op_type for node in result.model.graph.node]
    assert ops == ["Cast", "SimplifiedLayerNormalization", "MatMul", "Add", "Cast"]
    assert_equivalent(model, result.model, numerics="rounding")


def test_equal_simplified_normalizations_become_one_and_unread_ones_go() -> None:
    text = _DECODER.replace(
        "y = Add (x, a)",
        """
      m = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001, stash_type = 1> (x, g)
      u = SimplifiedLayerNormalization <axis = -1> (a, g)
      y = Add (m, a)""",
    )
    model = _decoder(text)
    result = PassManager("basic").run(model)
    assert [node.op_type for node in result.model.graph.node] == ["SimplifiedLayerNormalization", "MatMul", "Add"]
    assert_equivalent(model, result.model, numerics="exact")
