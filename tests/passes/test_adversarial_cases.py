"""Small models against single rules: what broke once, and what came close to it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.manager import PassManager
from graphopt.verify import compare


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return model


def run(text: str, level: str = "basic", **settings: object) -> onnx.ModelProto:
    """The result, which is a right and settled one."""
    model = parse(text)
    manager = PassManager(level, strict=True, check=True, **settings)  # type: ignore[arg-type]
    result = manager.run(model)
    onnx.checker.check_model(result.model, full_check=True)
    report = compare(model, result.model, numerics="rounding")
    assert report.ok, str(report)
    assert not manager.run(result.model).events
    return result.model


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_old_functions_hold_no_constants_of_integers() -> None:
    """A `Constant` node states floats only before opset 9, and a function has no initializers."""
    text = """<ir_version: 8, opset_import: ["" : 7, "local" : 1]> g (float[2,3] x) => (int64[2] y) { y = local.f (x) }
    <domain: "local", opset_import: ["" : 7]> f (x) => (y) { y = Shape (x) }"""
    assert run(text).functions[0].node[0].op_type == "Shape"


def test_a_shape_behind_an_identity_is_known_in_one_run() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4] x) => (float[?,?,?] y)
    <int64[4] s = {0, 2, 1, 4}, int64[3] t = {0, 0, 4}>
    { i = Identity (s)  a = Reshape (x, i)  b = Transpose <perm = [0,2,1,3]> (a)  c = Neg (b)
      d = Transpose <perm = [0,2,1,3]> (c)  y = Reshape (d, t) }"""
    assert "Transpose" not in ops(run(text))


def test_transposing_gemm_is_not_bit_exact() -> None:
    """The runtime adds up in another order, so that `verify=True` must not ask for equal bits."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[7,5] x, float[9,7] w) => (float[5,9] y)
    { a = Transpose (x)  b = Transpose (w)  y = Gemm (a, b) }"""
    assert ops(run(text, passes="fuse_transpose_into_gemm", verify=True)) == ["Gemm"]


def test_old_graphs_put_out_no_constants_of_integers() -> None:
    text = """<ir_version: 8, opset_import: ["" : 8]> g (float[2,3] x) => (int64[2] y) { y = Shape (x) }"""
    assert ops(run(text)) == ["Shape"]


@pytest.mark.parametrize("name", ["fuse_layer_normalization", "fuse_rms_normalization"])
def test_no_axes_may_mean_that_nothing_is_reduced(name: str) -> None:
    center = "m = ReduceMean <noop_with_empty_axes = 1> (x, axes)  d = Sub (x, m)" if "layer" in name else "d = Neg (x)"
    text = f"""<ir_version: 10, opset_import: ["" : 23]> g (float[2,3] x) => (float[2,3] y) <float e = {{0.01}}>
    {{ axes = Constant <value = int64[0] {{}}> ()  {center}  s = Mul (d, d)
      v = ReduceMean <noop_with_empty_axes = 1> (s, axes)  w = Add (v, e)  r = Sqrt (w)  y = Div (d, r) }}"""
    assert ops(run(text, passes=name))[-1] == "Div"


def test_a_divisor_may_come_from_a_node_without_inputs() -> None:
    text = """<ir_version: 10, opset_import: ["" : 23]> g (float[2,3] x) => (float[2,3] y)
    { c = Constant <value = float {2}> ()  y = Div (x, c) }"""
    for name in ("fuse_layer_normalization", "fuse_rms_normalization", "fuse_gelu", "fuse_consecutive_mul"):
        assert ops(run(text, passes=name)) == ["Constant", "Div"]


PART = "a = Slice (x, s, e, z)  b = Neg (a)  c = Slice (b, z, k, z)"
PARTS = {
    "plain": f"<ir_version: 5, opset_import: ['' : OP]> g (float[n] x, float[m] w) => (float[?] y) INITS {{ {PART} y = Relu (c) }}",
    "branch": f"""<ir_version: 5, opset_import: ['' : OP]> g (float[n] x, float[m] w, bool q) => (float[?] y) INITS
    {{ y = If (q) <then_branch = t () => (float[?] c) {{ {PART} }}, else_branch = f () => (float[?] d) {{ d = Neg (w) }}> }}""",
    "function": f"""<ir_version: 8, opset_import: ['' : OP, 'l' : 1]> g (float[n] x, float[m] w) => (float[?] y) INITS
    {{ c = l.f (x, s, e, z, k)  y = Relu (c) }} <domain: 'l', opset_import: ['' : OP]> f (x, s, e, z, k) => (c) {{ {PART} }}""",
}
INITS = "<int64[1] s = {0}, int64[1] e = {-1}, int64[1] z = {0}, int64[1] k = {2}>"


@pytest.mark.parametrize("opset", [10, 11, 13])
@pytest.mark.parametrize("place", PARTS)
def test_a_part_of_an_axis_with_a_name_has_another_size(place: str, opset: int) -> None:
    """At opset 10 the standard's inference says that the part has the size of the whole."""
    text = PARTS[place].replace("OP", str(opset)).replace("INITS", INITS).replace("'", '"')
    for level in ("basic", "all"):
        result = run(text, level)
        nodes = [*result.graph.node, *(node for function in result.functions for node in function.node)]
        nodes += [node for owner in result.graph.node for attribute in owner.attribute for node in attribute.g.node]
        assert sum(node.op_type == "Slice" for node in nodes) == 2, place


def test_parts_of_shapes_are_still_followed() -> None:
    text = """<ir_version: 5, opset_import: ["" : 10]> g (float[n,2,3] x) => (float[?,?] y)
    <int64[1] s = {1}, int64[1] e = {3}, int64[1] z = {0}, int64[1] m = {-1}>
    { a = Shape (x)  b = Slice (a, s, e, z)  c = ReduceProd <keepdims = 1> (b)  d = Concat <axis = 0> (m, c)
      y = Reshape (x, d) }"""
    assert ops(run(text)) == ["Reshape"]


def test_verifying_bears_that_a_weight_becomes_a_constant() -> None:
    """All that fires is exact, but the runtime multiplies with weights that it knows by another kernel."""
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[b,64] x, float[64,64] w) => (float[b,64] y)'
        "{ i = Identity (w)  a = MatMul (x, i)  y = Relu (a) }"
    )
    del model.graph.input[1]
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    result = PassManager(verify=True).run(model)
    assert ops(result.model) == ["MatMul", "Relu"]
    assert result.verification is not None
    assert result.verification.ok


def test_verifying_bears_infinities_that_no_longer_cancel() -> None:
    """As the pass says: infinities of both branches gave NaN, and one weight gives an infinity."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,64] x) => (float[1,1,64] y)
    <float[1,1,1] k = {-0.5}> { a = Conv (x, k)  y = Add (a, x) }"""
    manager = PassManager(verify=True)
    result = manager.run(parse(text))
    assert ops(result.model) == ["Conv"]
    assert manager.plan.rule("fuse_parallel_convs").finite
    assert compare(parse(text), result.model).status_of("special") == "mismatch"
    text = text.replace("-0.5", "0.5")
    assert compare(parse(text), result.model).status_of("ordinary") == "mismatch"
