"""What golden text cannot say of eliminations: types without a text form, notes beside the graph, large graphs."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.manager import PassManager
from graphopt.results import Result


def run(model: onnx.ModelProto, passes: str) -> Result:
    return PassManager(passes=passes, numerics="fast", strict=True, check=True, explain=True).run(model)


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def initializer_names(result: Result) -> list[str]:
    return [tensor.name for tensor in result.model.graph.initializer]


TWO_WEIGHTS = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4] x) => (float[4] y)
{
  a = DequantizeLinear (p, s)
  b = DequantizeLinear (q, s)
  c = Add (x, a)
  y = Mul (c, b)
}
"""


def with_weights(dtype: int, p: list[int], q: list[int]) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(model_of(TWO_WEIGHTS.replace("g (float[4] x)", "g (float[4] x, float[4] p, float[4] q, float s)")))
    del model.graph.input[1:]
    for name, numbers in (("p", p), ("q", q)):
        model.graph.initializer.append(helper.make_tensor(name, dtype, [4], numbers))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "s"))
    return model


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN, TensorProto.INT8])
def test_small_types_are_merged_by_their_bits(dtype: int) -> None:
    same = run(with_weights(dtype, [1, 2, 3, 4], [1, 2, 3, 4]), "eliminate_duplicate_initializer")
    assert initializer_names(same) == ["p", "s"]
    other = run(with_weights(dtype, [1, 2, 3, 4], [1, 2, 3, 5]), "eliminate_duplicate_initializer")
    assert not other.changed


def test_not_a_number_equals_itself() -> None:
    model = with_weights(TensorProto.INT8, [1] * 4, [2] * 4)
    nan = np.array([np.nan, -np.nan], np.float32)
    for name in ("n", "m"):
        model.graph.initializer.append(numpy_helper.from_array(nan, name))
    model.graph.node.append(helper.make_node("Concat", ["n", "m"], ["k"], axis=0))
    model.graph.output.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [4]))
    assert "m" not in initializer_names(run(model, "eliminate_duplicate_initializer"))


@pytest.mark.parametrize("equal", [True, False])
def test_large_weights(equal: bool) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    other = weights.copy()
    if not equal:
        other[17, 3] += 1
    model = model_of(
        '<ir_version: 9, opset_import: ["" : 18]>\n'
        "g (float[64,64] x, float[64,64] v, float[64,64] w) => (float[64,64] y) { a = Mul (x, v)  y = Add (a, w) }"
    )
    del model.graph.input[1:]
    model.graph.initializer.extend([numpy_helper.from_array(weights, "v"), numpy_helper.from_array(other, "w")])
    assert run(model, "eliminate_duplicate_initializer").changed is equal


UNUSED = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y)
<float u = {1}, float v = {1}>
{
  y = Neg (x)
}
"""


@pytest.mark.parametrize("name", ["eliminate_unused_initializer", "eliminate_duplicate_initializer"])
def test_quantization_notes_keep_their_initializers(name: str) -> None:
    model = model_of(UNUSED)
    note = model.graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="u")
    note.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="v")
    assert run(model_of(UNUSED), name).changed
    assert not run(model, name).changed


@pytest.mark.parametrize("name", ["eliminate_unused_initializer", "eliminate_duplicate_initializer"])
def test_training_information_keeps_its_initializers(name: str) -> None:
    model = model_of(UNUSED)
    algorithm = model.training_info.add().algorithm
    algorithm.name = "step"
    assert run(model, name).changed
    algorithm.node.add(op_type="Add", input=["u", "v"], output=["stepped"])
    assert not run(model, name).changed


def test_sparse_initializers_stay() -> None:
    model = model_of(UNUSED)
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    result = run(model, "eliminate_unused_initializer")
    assert not initializer_names(result)
    assert len(result.model.graph.sparse_initializer) == 1


def hiding(body: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """A branch that has a value `a` of its own, like the graph around it."""
    out = helper.make_tensor_value_info("t", TensorProto.FLOAT, [2])
    branch = helper.make_graph(body, "branch", [], [out], initializer=weights)
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "w"], ["b"]),
        helper.make_node("If", ["c"], ["r"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["b", "r"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    weight = numpy_helper.from_array(np.array([1, -2], np.float32), "w")
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=[weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_hidden_node_is_not_read() -> None:
    body = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["u"]),
        helper.make_node("Add", ["a", "u"], ["t"]),
    ]
    result = run(hiding(body, []), "eliminate_common_subexpression")
    assert not result.changed
    assert {miss.reason for miss in result.near_misses} == {"a is not visible in graph branch"}


def test_a_hidden_initializer_is_not_read() -> None:
    body = [helper.make_node("Exp", ["x"], ["w"]), helper.make_node("Add", ["w", "v"], ["t"])]
    weight = numpy_helper.from_array(np.array([1, -2], np.float32), "v")
    assert not run(hiding(body, [weight]), "eliminate_duplicate_initializer").changed


def test_many_readers_of_one_value() -> None:
    """Neither equal nor different nodes on one shared input may cost quadratic time."""
    nodes = [helper.make_node("LeakyRelu", ["x"], [f"v{i}"], alpha=(i % 1500) / 1500) for i in range(3000)]
    nodes.append(helper.make_node("Sum", [f"v{i}" for i in range(3000)], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    start = perf_counter()
    manager = PassManager(passes="eliminate_common_subexpression", strict=True)
    assert len(manager.run(model).model.graph.node) == 1501
    assert perf_counter() - start < 60  # quadratic work would take minutes


def test_exact_numerics_keep_the_sign_of_zero() -> None:
    model = model_of(
        '<ir_version: 9, opset_import: ["" : 18]>\n'
        "g (float[2] x) => (float[2] y) <float u = {0}> { a = Abs (x)  b = Add (a, u)  y = Neg (b) }"
    )
    assert not PassManager(passes="elimination/*", numerics="exact").run(model).changed
    assert PassManager(passes="elimination/*", numerics="rounding").run(model).changed


@pytest.mark.parametrize("body", ["t = Expand (a, k)  y = Pow (x, t)", "t = Expand (a, k)  y = Max (t, x)",
                                  "t = Expand (a, k)  y = Log (t)"])  # fmt: skip
def test_exact_numerics_keep_the_number_of_elements_that_kernels_compute(body: str) -> None:
    """Kernels compute a single number, or with one, by other instructions than a row: the last bit differs."""
    model = model_of(
        f'<ir_version: 9, opset_import: ["" : 18]>\ng (float[8] x, float[1] a, int64[1] k) => (float[8] y) {{ {body} }}'
    )
    assert not PassManager(passes="elimination/*", numerics="exact").run(model).changed
    assert PassManager(passes="elimination/*", numerics="rounding").run(model).changed
