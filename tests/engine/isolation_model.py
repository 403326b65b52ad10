"""A model that has one of everything that a pass can reach, for the tests of isolation."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TEXT = """
<ir_version: 10, opset_import: ["" : 18, "local" : 1], producer_name: "isolation", doc_string: "a doc", metadata_props: ["key" : "text", "other" : "more"]>
g (float[2,3] x, bool c, float[3] d) => (float[2,3] y, float[2,3] z, seq(float[2,3]) s)
<float[3] w = {1, 2, 3}, float[3] w2 = {1, 2, 3}, float[3] d = {4, 5, 6}, int64[1] axes = {1}, float[3] unused = {7, 8, 9}, float[3] scale = {1, 1, 1}>
{
  [first] a = Mul (x, w)
  [second] b = Add (a, w2)
  k = Constant <value = float[3] {1, 1, 2}> ()
  [third] e = Sub (b, k)
  m = ReduceMean <keepdims = 1> (e, axes)
  f = local.twice <alpha = 2.0> (e)
  dead = Neg (f)
  [branch] h = If (c) <then_branch = t () => (float[2,3] p) <float[3] tw = {1, 0, 1}> { q = Mul (e, tw) p = Neg (q) }, else_branch = o () => (float[2,3] r) { r = Relu (f) }>
  y = Add (h, m)
  z = Mul (h, d)
  i = Add (z, scale)
  s = SequenceConstruct (y, i)
}
<domain: "local", opset_import: ["" : 18]>
twice <alpha> (u) => (v) { n = Add (u, u) v = LeakyRelu <alpha: float = @alpha> (n) }
<domain: "local", opset_import: ["" : 18]>
never (u) => (v) { v = Neg (u) }
"""


def everything() -> onnx.ModelProto:
    """The model: bodies, functions, annotations, training information, documentation, a sequence, weights of each kind."""
    model = onnx.parser.parse_model(_TEXT)
    graph = model.graph
    for number, node in enumerate(graph.node):
        node.doc_string = f"node {number}"
        node.metadata_props.add(key="at", value=str(number))
    graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3]))
    graph.value_info.append(helper.make_tensor_value_info("nothing", TensorProto.FLOAT, [2, 3]))
    graph.initializer.append(numpy_helper.from_array(np.arange(4096, dtype=np.float32), "large"))
    note = graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    training = model.training_info.add()
    training.algorithm.name = "step"
    training.algorithm.node.append(helper.make_node("Neg", ["unused"], ["stepped"]))
    training.update_binding.add(key="unused", value="stepped")
    return model
