"""Before opset 11 a runtime must not learn that branches have different shapes: such a model would not load any more."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt import PassManager, optimize

INSIDE = """
y = If (c) <
  then_branch = small () => (float[a,b] p) {
    s = Shape (x) f = Cast <to = 1> (s) t = Cast <to = 7> (f) q = Reshape (x, t) p = Relu (q)
  },
  else_branch = large () => (float[d,e] r) {
    u = Concat <axis = 0> (x, x)
    v = Shape (u) h = Cast <to = 1> (v) w = Cast <to = 7> (h) k = Reshape (u, w) i = Identity (k) r = Relu (i)
  }>
"""
OUTSIDE = """
u = Concat <axis = 0> (x, x)
v = Shape (u) h = Cast <to = 1> (v) w = Cast <to = 7> (h)
k = Reshape (u, w)
y = If (c) <
  then_branch = small () => (float[a,b] p) { p = Relu (x) },
  else_branch = large () => (float[d,e] r) { i = Identity (k) r = Relu (i) }>
"""
RANKS = """
s = Shape (x) f = Cast <to = 1> (s) t = Cast <to = 7> (f)
y = If (c) <
  then_branch = flat () => (float p) { z = Size (x) e = Unsqueeze <axes = [0]> (z) q = Reshape (x, e) p = Relu (q) },
  else_branch = same () => (float r) { q1 = Reshape (x, t) r = Relu (q1) }>
"""


def _model(body: str, opset: int, condition: str = "bool c, float[2,3] x") -> onnx.ModelProto:
    text = f'<ir_version: 4, opset_import: ["" : {opset}]> g ({condition}) => (float y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for node in (each for each in model.graph.node if body is RANKS):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                attribute.g.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("body", [INSIDE, OUTSIDE, RANKS])
@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize("level", ["basic", "all"])
def test_the_result_still_loads(body: str, opset: int, level: str) -> None:
    model = _model(body, opset)
    once = optimize(model, level, strict=True)
    assert optimize(once, level, strict=True) == once
    for truth in (True, False):
        feed = {"c": np.asarray(truth), "x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3)}
        assert differs(run_model(model, feed), run_model(once, feed)) is None


def test_from_opset_11_on_and_with_a_known_condition_all_is_plain() -> None:
    newer = optimize(_model(INSIDE, 11))
    assert [len(attribute.g.node) for attribute in newer.graph.node[0].attribute] == [1, 2]
    known = _model(INSIDE, 10, "float[2,3] x")
    known.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(True), "c"))
    assert [node.op_type for node in optimize(known).graph.node] == ["Relu"]


def test_a_condition_that_follows_from_a_known_shape_is_computed() -> None:
    """It decides on a branch, not on the shapes; what is kept for another `If` stays as it is."""
    computed = "g0 = Shape (x) g1 = Gather (g0, one) c = Equal (g1, three)"
    unknown = INSIDE.replace("y = If (c)", "o = If (b)")
    for body, ops in {computed + INSIDE: ["Relu"], computed + INSIDE + unknown: ["Relu", "If"]}.items():
        model = _model(body, 10, "bool b, float[2,3] x")
        for name, number in {"one": 1, "three": 3}.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(number), name))
        if "If" in ops:
            model.graph.output.append(onnx.helper.make_tensor_value_info("o", 1, None))
        once = optimize(model, strict=True)
        assert [node.op_type for node in once.graph.node] == ops
        assert optimize(once, strict=True) == once
        feed = {"b": np.asarray(False), "x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3)}
        assert differs(run_model(model, feed), run_model(once, feed)) is None


@pytest.mark.parametrize("condition", ["known", "computed"])
def test_a_copy_of_unlike_branches_is_kept_as_well(condition: str) -> None:
    """The outer `If` is replaced with a branch, whose nodes are new ones."""
    inside = INSIDE.replace("y = If", "o = If")
    model = _model(
        f"""g0 = Shape (x) g1 = Gather (g0, one) computed = Equal (g1, three)
        y = If ({condition}) <
          then_branch = outer () => (float n) {{ {inside} n = Neg (o) }},
          else_branch = other () => (float m) {{ m = Identity (x) }}>""",
        10, "bool c, float[2,3] x",
    )  # fmt: skip
    for attribute in model.graph.node[-1].attribute:
        attribute.g.output[0].type.tensor_type.ClearField("shape")
    for name, value in {"one": 1, "three": 3, "known": True}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    once = optimize(model, strict=True)
    assert [node.op_type for node in once.graph.node] == ["If", "Neg"]
    for truth in (True, False):
        feed = {"c": np.asarray(truth), "x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3)}
        assert differs(run_model(model, feed), run_model(once, feed)) is None


def test_what_no_shape_follows_from_changes_as_ever() -> None:
    model = _model(INSIDE.replace("If (c)", "If (d)"), 10)
    model.graph.node.insert(0, onnx.helper.make_node("Identity", ["z"], ["y2"]))
    model.graph.node.insert(0, onnx.helper.make_node("Identity", ["x"], ["z1"]))
    model.graph.node.insert(1, onnx.helper.make_node("Relu", ["z1"], ["z"]))
    model.graph.node.insert(0, onnx.helper.make_node("Not", ["c"], ["d"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("y2", 1, None))
    result = PassManager().run(model)
    assert [node.op_type for node in result.model.graph.node] == ["Not", "Relu", "If"]


CONVOLVED = """
a = Conv <pads = [1,1,1,1]> (x, w) b = Relu (a) e = Conv <pads = [1,1,1,1]> (b, w)
y = If (c) <
  then_branch = small () => (float[h0,h1,h2,h3] p) {
    s = Shape (e) f = Cast <to = 1> (s) t = Cast <to = 7> (f) q = Reshape (e, t) p = Relu (q)
  },
  else_branch = large () => (float[k0,k1,k2,k3] r) {
    u = Concat <axis = 0> (x, x) v = Shape (u) h = Cast <to = 1> (v) z = Cast <to = 7> (h) k = Reshape (u, z) r = Relu (k)
  }>
"""


def test_no_pass_prepares_what_it_may_not_do() -> None:
    """A layout pass adds nodes before it replaces others; alone, they would be removed and added in every round."""
    model = _model(CONVOLVED, 10, "bool c, float[1,16,8,8] x")
    weight = np.linspace(-1, 1, 16 * 16 * 9, dtype=np.float32).reshape(16, 16, 3, 3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    result = PassManager("layout", target="avx2", strict=True).run(model)
    assert (result.hits, result.log.unsettled) == ({}, 0)
