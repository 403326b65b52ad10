"""Models that tempt an optimizer to assume what no one promised."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from graphopt.errors import ModelError
from graphopt.manager import PassManager
from graphopt.verify import assert_equivalent

HEAD = '<ir_version: 9, opset_import: ["" : 18]> '
MANAGER = PassManager("basic", strict=True, check=True)

TEMPTING = {
    "an overridable trip count": "g (float[2] x, int64 m) => (y) <int64 m = {2}, bool c = {1}> { y = Loop (m, c, x)"
    " <body = b (int64 i, bool ci, float[2] s) => (bool co, float[2] so) { co = Identity (ci)  so = Sin (s) }> }",
    "an overridable condition": "g (float[2] x, bool c) => (y) <bool c = {1}> { y = If (c)"
    " <then_branch = t () => (float[2] p) { p = Neg (x) }, else_branch = f () => (float[2] q) { q = Exp (x) }> }",
    "an overridable position": "g (float[2] x, float[2] z, int64 i) => (y) <int64 i = {1}> { s = SequenceConstruct (x, z)"
    "  a = SequenceAt (s, i)  y = Neg (a) }",
    "an overridable shape": "g (float[4] x, int64[2] s) => (y) <int64[2] s = {2,2}> { a = Reshape (x, s)  y = Neg (a) }",
    "an empty tensor": "g (float[0,3] x) => (y, z) { a = Neg (x)  y = ReduceSum (a)  z = Concat <axis = 0> (x, x) }",
    "an empty constant": "g (float[N] x) => (y) <float[0] e> { y = Concat <axis = 0> (x, e) }".replace("e>", "e = {}>"),
    "negative axes": "g (float[2,3] x) => (y, z) <int64[1] a = {-1}> { u = Unsqueeze (x, a)  y = Squeeze (u, a)"
    "  z = Softmax <axis = -2> (x) }",
    "a name used in two branches": "g (float[2] x, bool d) => (y) { y = If (d) <then_branch = t () => (float[2] p)"
    " { a = Neg (x)  p = Exp (a) }, else_branch = f () => (float[2] p) { a = Abs (x)  p = Sqrt (a) }> }",
    "a loop that swaps": "g (float[2] x, float[2] z) => (y, w) <int64 m = {3}, bool c = {1}> { y, w = Loop (m, c, x, z)"
    " <body = b (int64 i, bool ci, float[2] s, float[2] u) => (bool co, float[2] uo, float[2] so) { co = Identity (ci)"
    "  uo = Identity (u)  so = Identity (s) }> }",
    "an input put out": "g (float[2] x) => (y, z) { y = Identity (x)  z = Identity (x) }",
}


@pytest.mark.parametrize("name", TEMPTING)
def test_results_stay(name: str) -> None:
    model = parser.parse_model(HEAD + TEMPTING[name])
    result = MANAGER.run(model)
    assert [v.name for v in result.model.graph.input] == [v.name for v in model.graph.input]
    assert_equivalent(model, result.model, numerics="rounding")


def test_a_scan_of_nothing_passes_its_state_on() -> None:
    """ONNX Runtime fails on it, so there is nothing to compare with; the standard is clear."""
    model = parser.parse_model(
        HEAD + "g (float[2] x, float[0,2] w) => (y) { y = Scan <num_scan_inputs = 1, body = b (float[2] s,"
        " float[2] e) => (float[2] so) { so = Add (s, e) }> (x, w) }"
    )
    assert [(n.op_type, list(n.input)) for n in MANAGER.run(model).model.graph.node] == [("Identity", ["x"])]


def test_random_draws_are_neither_merged_nor_computed() -> None:
    model = parser.parse_model(
        HEAD + "g (float[2] x) => (y) <float[2] k = {1,2}> { a = RandomNormalLike (k)  b = RandomNormalLike (k)"
        "  c = RandomUniform <shape = [2]> ()  d = Bernoulli (k)  e = Sum (a, b, c, d)  y = Add (x, e) }"
    )
    ops = MANAGER.run(model).after.ops
    assert ops["RandomNormalLike"] == 2
    assert ops["RandomUniform"] == ops["Bernoulli"] == 1


def graph(
    nodes: list[onnx.NodeProto], *, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    def infos(names: tuple[str, ...]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]

    built = helper.make_graph(nodes, "g", infos(inputs), infos(outputs))
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (graph([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Neg", ["a"], ["y"])]), "cycle"),
        (graph([helper.make_node("Add", ["x", "y"], ["y"])]), "cycle"),
        (graph([helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]), "twice"),
        (graph([helper.make_node("Neg", ["x"], ["x"]), helper.make_node("Abs", ["x"], ["y"])]), "twice"),
        (graph([helper.make_node("Neg", ["nobody"], ["y"])]), "nowhere"),
        (graph([helper.make_node("Neg", ["x"], ["a"])]), "nowhere"),
        (graph([helper.make_node("Neg", ["x"], ["y"])], inputs=("x", "x")), "twice"),
    ],
)  # fmt: skip
def test_what_is_no_graph_is_refused(model: onnx.ModelProto, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        MANAGER.run(model)


def test_an_attribute_of_the_wrong_type_leaves_the_node_alone() -> None:
    """No runtime takes such a model; a default in the place of the attribute would make it mean something."""
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm="no"),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0]),
        helper.make_node("Softmax", ["c"], ["y"], axis=1.0),
    ]
    result = PassManager("all", explain=True, strict=True, check=True).run(graph(nodes))
    left = result.model.graph.node
    assert [(n.op_type, list(n.input)) for n in left] == [("Transpose", ["x"]), ("Softmax", ["b"])]
    assert [helper.get_attribute_value(n.attribute[0]) for n in left] == [b"no", 1.0]


def test_a_constant_with_a_wrong_attribute_is_not_computed_with() -> None:
    nodes = [
        helper.make_node("Constant", [], ["k"], value_int="3"),
        helper.make_node("Concat", ["k", "k"], ["c"], axis="0"),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    assert MANAGER.run(graph(nodes)).after.nodes == 3


def test_an_initializer_given_twice_is_refused() -> None:
    model = graph([helper.make_node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.extend(numpy_helper.from_array(np.ones(2, np.float32), "w") for _ in range(2))
    with pytest.raises(ModelError, match="twice"):
        MANAGER.run(model)
