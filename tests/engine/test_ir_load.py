"""What loading refuses, and how values, uses and scopes come out."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.errors import ModelError
from graphopt.ir import Model


def parse(body: str, head: str = 'ir_version: 9, opset_import: ["" : 18]') -> onnx.ModelProto:
    return onnx.parser.parse_model(f"<{head}> {body}")


def graph_of(
    *nodes: onnx.NodeProto, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in inputs]
    out = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in outputs]
    graph = helper.make_graph(list(nodes), "g", info, out)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([helper.make_node("Relu", ["nowhere"], ["y"])], "node input 'nowhere' of Relu node '' in graph 'g' is defined nowhere"),
        ([helper.make_node("Relu", ["x"], ["z"])], "graph output 'y' in graph 'g' is defined nowhere"),
        ([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])], "value 'y' of graph 'g' is defined twice"),
        ([helper.make_node("Relu", ["b"], ["y"]), helper.make_node("Neg", ["y"], ["b"])], "has a cycle"),
    ],
)  # fmt: skip
def test_broken_graphs_are_refused(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.load(graph_of(*nodes))


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "empty"), (b"not a model at all", "no ONNX model"), (b"\x08", "truncated")]
)
def test_bytes_that_are_no_model_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.load(data)


def test_nodes_out_of_order_are_sorted() -> None:
    model = Model.load(graph_of(helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])))
    assert [node.op for node in model.graph] == ["Neg", "Relu"]
    model.verify()


def test_uses_count_uses_and_not_users() -> None:
    model = Model.load(parse("g (float[2] x) => (float[2] y) { a = Neg (x)  y = Mul (a, a) }"))
    a = model.graph.values["a"]
    assert a.uses == 2
    assert not a.one_use
    assert model.graph.values["x"].one_use
    assert model.graph.values["y"].uses == 1
    assert not model.graph.values["y"].one_use


def test_captured_values_count_as_uses() -> None:
    model = Model.load(
        parse(
            "g (float[2] x, bool c) => (float[2] y) { a = Neg (x)  "
            "y = If (c) <then_branch = t () => (float[2] p) { p = Relu (a) }, else_branch = e () => (float[2] q) { q = Abs (a) }> }"
        )
    )
    a = model.graph.values["a"]
    assert a.uses == 2
    assert a.is_captured
    assert [g.name for g in model.graphs()] == ["g", "t", "e"]


def test_an_initializer_that_is_an_input_is_no_constant() -> None:
    source = parse(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] v = {1, 2}> { a = Add (x, w)  y = Add (a, v) }"
    )
    source.graph.initializer.add().CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2]))
    values = Model.load(source).graph.values
    assert not values["w"].is_const
    assert values["v"].is_const


def test_domain_and_overload_are_part_of_the_key() -> None:
    source = parse(
        "g (float[2] x) => (float[2] y) { a = my.domain.Identity (x)  b = ai.onnx.Identity (a)  y = local.f (b) }",
        'ir_version: 10, opset_import: ["" : 18, "my.domain" : 1, "local" : 1]',
    )
    function = helper.make_function(
        "local", "f", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    source.functions.append(function)
    model = Model.load(source)
    keys = [node.op for node in model.graph]
    assert keys[0] == "my.domain::Identity"
    assert keys[1] == "Identity"
    assert keys[2] not in ("f", "local::f")
    assert [g.is_function for g in model.graphs()] == [False, True]


def test_defaults_come_from_the_schema_at_the_opset() -> None:
    new = Model.load(parse("g (float[2,2] x) => (float[2,2] y) { y = Softmax (x) }"))
    old = Model.load(
        parse("g (float[2,2] x) => (float[2,2] y) { y = Softmax (x) }", 'ir_version: 6, opset_import: ["" : 12]')
    )
    assert next(iter(new.graph)).attr("axis") == -1
    assert next(iter(old.graph)).attr("axis") == 1
