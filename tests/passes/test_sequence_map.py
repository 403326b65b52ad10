"""Maps over known sequences give what the runtime computes, in branches and with many, empty and captured elements."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

from graphopt.manager import PassManager

HEAD = '<ir_version: 9, opset_import: ["" : 18]> g (bool c, float[N] x, float[N] z) => (y) '
BODIES = {
    "in a branch": (
        "<int64 at = {1}> { s = SequenceConstruct (x, z)  y = If (c) <then_branch = t () => (float[K] p) "
        "{ m = SequenceMap <body = b (float[K] e) => (float[K] o) <float w = {2}> "
        "{ q = Mul (e, w)  o = Add (q, x) }> (s)  p = SequenceAt (m, at) }, "
        "else_branch = f () => (float[K] r) { r = Neg (x) }> }"
    ),
    "many": (
        f"{{ s = SequenceConstruct ({', '.join(['x', 'z'] * 20)})  "
        "m = SequenceMap <body = b (float[K] e) => (float[K] o) { o = Abs (e) }> (s)  "
        "y = ConcatFromSequence <axis = 0> (m) }"
    ),
    "two results": (
        "{ s = SequenceConstruct (x, z)  m, n = SequenceMap <body = b (float[K] e, float[K] t) => "
        "(float[K] o, float[K] p) { o = Abs (t)  p = Identity (e) }> (s, z)  "
        "u = ConcatFromSequence <axis = 0> (m)  v = ConcatFromSequence <axis = 0> (n)  y = Add (u, v) }"
    ),
}


def run(model, feed):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: feed[one.name] for one in session.get_inputs()})[0]


@pytest.mark.parametrize("name", BODIES)
def test_results_are_the_same(name):
    model = parser.parse_model(HEAD + BODIES[name])
    result = PassManager("basic").run(model)
    assert result.hits["eliminate_sequence_map_of_construct"] == 1
    for size in (0, 3):
        x = np.array([-0.0, -1.5, np.inf], np.float32)[:size]
        for condition in (True, False):
            feed = {"c": np.array(condition), "x": x, "z": x[::-1] - 1}
            assert np.array_equal(run(model, feed), run(result.model, feed))
