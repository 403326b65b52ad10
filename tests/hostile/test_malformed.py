"""Nodes, names and functions that break the rules of the format are refused in one line, or left alone."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.audit.difference import diff
from graphopt.errors import Decline, ModelError
from graphopt.ir import Model
from graphopt.manager import PassManager
from graphopt.operators import Pad
from graphopt.verify import compare
from graphopt.verify.source import without_weights
from tests.hostile.mutations import nested_functions, nested_graphs, nested_types
from tests.same import assert_same_bytes

MARK = b"WHERE-A-NAME-IS"


def model_with(place: str) -> bytes:
    """A model with bytes that are no UTF-8 in one of its names."""
    mark = MARK.decode()
    named = {key: mark if key == place else f"a_{key}" for key in ("x", "y", "w", "node", "domain", "op", "graph", "function", "dim", "attribute", "info")}  # fmt: skip
    nodes = [
        helper.make_node("Add", [named["x"], named["w"]], ["a"], name=named["node"]),
        helper.make_node(named["op"], ["a"], [named["y"]], domain=named["domain"], **{named["attribute"]: 1}),
    ]
    x = helper.make_tensor_value_info(named["x"], TensorProto.FLOAT, [named["dim"]])
    weight = helper.make_tensor(named["w"], TensorProto.FLOAT, [1], [1.0])
    y = helper.make_value_info(named["y"], onnx.TypeProto())
    graph = helper.make_graph(nodes, named["graph"], [x], [y], [weight])
    function = helper.make_function("f", named["function"], ["i"], ["o"], [helper.make_node("Neg", ["i"], ["o"])], [helper.make_opsetid("", 18)])  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(named["domain"], 1), helper.make_opsetid("f", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9)
    return model.SerializeToString().replace(MARK, b"\xff\xfe" + MARK[2:])


@pytest.mark.parametrize("place", ["x", "y", "w", "node", "domain", "op", "graph", "function", "attribute"])
def test_names_that_are_no_utf_8_are_refused(place: str) -> None:
    with pytest.raises(ModelError, match="UTF-8"):
        PassManager("basic").run(model_with(place))


def test_a_dimension_whose_name_is_no_utf_8_has_some_name() -> None:
    result = PassManager("all", strict=True).run(model_with("dim"))
    assert result.model.graph.node


@pytest.mark.parametrize(
    "data",
    [nested_functions(2000, 1), nested_functions(300, 2), nested_functions(2000, 1, circular=True), nested_graphs(400), nested_types(5000)],
    ids=["functions", "functions called twice", "a circle", "graphs", "types"],
)  # fmt: skip
def test_what_is_too_deep_is_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match="deep|no ONNX model"):
        PassManager("all", inline_functions=True).run(data)


@pytest.mark.parametrize("depth", [40, 400])
def test_graphs_in_graphs_that_no_file_can_hold_are_refused(depth: int) -> None:
    inputs = [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("c", 9, [])]
    result = helper.make_tensor_value_info("r", 1, [2])
    model = helper.make_model(helper.make_graph([], "g", inputs, [result]))
    graph = model.graph
    for _ in range(depth):
        node = graph.node.add(op_type="If", input=["c"], output=["r"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.output.append(result)
    graph.node.add(op_type="Relu", input=["x"], output=["r"])
    with pytest.raises(ModelError, match="deep"):
        PassManager("basic").run(model)


@pytest.mark.parametrize(
    "data", [nested_functions(90, 1), nested_functions(60, 2), nested_functions(1, 1, circular=True), nested_graphs(20)]
)
def test_what_is_deep_enough_for_anyone_is_taken(data: bytes) -> None:
    assert PassManager("basic", strict=True).run(data).model.graph.node


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Transpose", 0), ("Transpose", 2), ("Add", 1), ("Conv", 1), ("Concat", 0), ("Gather", 1), ("Where", 2), ("Reshape", 1), ("Loop", 0), ("If", 0), ("BatchNormalization", 2), ("Cast", 0),
    ],
)  # fmt: skip
def test_nodes_without_their_operands_are_left_alone(op: str, inputs: int) -> None:
    nodes = [
        helper.make_node(op, ["x"] * inputs, ["a"]),
        helper.make_node("Strange", ["a"], ["y"], domain="strange"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_value_info("y", onnx.TypeProto())])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("strange", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    assert next(iter(Model.load(model).graph)).op == f"malformed {op}"
    result = PassManager("all", strict=True).run(model)
    assert_same_bytes(result.model.SerializeToString(), model.SerializeToString())


@pytest.mark.parametrize(
    ("opset", "text"),
    [
        (18, "y = Concat (x, x)"), (18, "y = Cast (x)"), (18, "y = DepthToSpace (x)"), (18, "y = LRN (x)"),
        (18, "y = AveragePool (x)"), (21, "y = GroupNormalization (x, s, s)"), (9, "y = Slice <starts = [0]> (x)"),
        (18, "y = Einsum (x, x)"), (18, "y = SpaceToDepth (x)"), (13, "y = Cast <saturate = 1> (x)"),
    ],
)  # fmt: skip
def test_nodes_without_their_attributes_are_left_alone(opset: int, text: str) -> None:
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g (float[1,4,6,6] x) => (y) <float[4] s = {{1,2,3,4}}>'
    model = onnx.parser.parse_model(f"{head} {{ {text} }}")
    (node,) = Model.load(model).graph
    assert node.op == f"malformed {node.op_type}"
    result = PassManager("all", strict=True).run(model)
    assert list(result.model.graph.node) == list(model.graph.node)


def test_attributes_that_refer_to_nothing_are_left_alone() -> None:
    """Only in a function do they mean something."""
    nodes = [helper.make_node("Transpose", ["x"], ["a"]), helper.make_node("Transpose", ["a"], ["y"])]
    for node in nodes:
        node.attribute.add(name="perm", type=onnx.AttributeProto.INTS, ref_attr_name="nobody")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_value_info("y", onnx.TypeProto())])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert_same_bytes(PassManager("all", strict=True).run(model).model.SerializeToString(), model.SerializeToString())


def test_element_types_that_nobody_knows_have_a_number_for_a_name() -> None:
    models = []
    for value in (b"a", b"b"):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
        x.type.tensor_type.elem_type = 65536
        weight = TensorProto(name="w", data_type=65536, dims=[1], raw_data=value)
        nodes = [helper.make_node("Strange", ["x", "w"], ["y"], domain="strange")]
        graph = helper.make_graph(nodes, "g", [x], [helper.make_value_info("y", onnx.TypeProto())], [weight])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("strange", 1)]
        models.append(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    assert diff(models[0], models[0]).empty
    assert "type 65536[1]" in str(diff(*models).to_dict())
    assert not compare(*models).ok


@pytest.mark.parametrize("perm", [[1], [0, 1, 2], [0, 0], [2, 0], [-1, 0], [1 << 62, 0]])
@pytest.mark.parametrize("known", [True, False])
def test_what_is_no_permutation_is_left_alone(perm: list[int], known: bool) -> None:
    nodes = [helper.make_node("Transpose", [a], [b], perm=perm) for a, b in (("x", "a"), ("a", "b"))]
    nodes += [helper.make_node("Relu", ["b"], ["c"]), helper.make_node("Transpose", ["c"], ["y"], perm=perm)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2] if known else None)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_value_info("y", onnx.TypeProto())])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    result = PassManager("all", strict=True).run(model)
    if known:  # of what it gives nothing is known, so later ones of another rank may well be right
        first = result.model.graph.node[0]
        assert (first.op_type, list(first.input), list(first.attribute[0].ints)) == ("Transpose", ["x"], perm)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("convert_channel_normalization_to_last", "(float x) => (y) <float e = {1}> { m = ReduceMean (x)  c = Sub (x, m)  q = Mul (c, c)  v = ReduceMean (q)  w = Add (v, e)  s = Sqrt (w)  y = Div (c, s) }"),
        ("fuse_cast_into_constant_of_shape", "(int64[1] x) => (y) { a = ConstantOfShape <value = float[2] {1, 2}> (x)  y = Cast <to = 7> (a) }"),
        ("fuse_cast_into_constant_of_shape", "(int64[1] x) => (y) { a = ConstantOfShape <value = float[0] {}> (x)  y = Cast <to = 7> (a) }"),
        ("fuse_consecutive_clips", "(string[2] x) => (y) { a = Clip (x)  y = Clip (a) }"),
        ("fuse_consecutive_clips", "(bool[2] x) => (y) { a = Clip (x)  y = Clip (a) }"),
        ("fuse_consecutive_clips", "(bool[2] x) => (y) { c = Cast <to = 100> (x)  a = Clip (c)  y = Clip (a) }"),
        ("fuse_consecutive_concats", "(float[2] x) => (y) { a = Concat <axis = 0> (x, x)  y = Concat (a, x) }"),
        ("fuse_consecutive_reduce", "(bool[2,3] x) => (y) { c = Cast <to = 100> (x)  a = ReduceSum (c)  y = ReduceSum (a) }"),
        ("fuse_consecutive_reduce", "(float[2,3,4] x) => (y) { a = ReduceMean <axes = [0], keepdims = 0> (x)  y = ReduceMean <axes = [0], keepdims = 0> (a) }"),
        ("fuse_consecutive_transposes", "(float x, int64[n] s) => (y) { r = Reshape (x, s)  a = Transpose <perm = [0,1]> (r)  y = Transpose <perm = [0,2,1]> (a) }"),
        ("fuse_mul_into_matmul", "(float[2,2] x) => (y) <float[2,2] w = {1,2,3,4}, float[3] b = {1,2,3}, float[2] s = {2,3}> { p = MatMul (x, w)  a = Add (p, b)  y = Mul (a, s) }"),
        ("fuse_mul_into_matmul", "(float[2,2] x) => (y) <float[2,2] w = {1,2,3,4}, int64[2] b = {1,2}, float[2] s = {2,3}> { p = MatMul (x, w)  a = Add (p, b)  y = Mul (a, s) }"),
        ("convert_average_pool_to_conv", "(float[1,8,16,16] x) => (y) { y = AveragePool <kernel_shape = [3,3,7]> (x) }"),
        ("eliminate_negligible_weights", "(float[1,2,4,4] x) => (y) <float w = {1e-40}, float[2] b = {1e-39,1}, float[2,2,1,1] v = {1,2,3,4}> { a = Conv (x, w, b)  y = Conv (a, v) }"),
        ("eliminate_nop_slice", "(float[2,3] x) => (y) <int64[2] s = {0,0}, int64[1] e = {9}> { y = Slice (x, s, e) }"),
        ("fuse_pad_into_conv", "(float[1,1,3,3] x) => (y) <float[1,1,2] w = {1,2}, int64[6] p = {0,0,1,0,0,1}> { a = Pad (x, p)  y = Conv (a, w) }"),
        ("fuse_transpose_into_flattened_gemm", "(float[n,2,3,1] x) => (y) <float[5,2] w = {0,1,2,3,4,5,6,7,8,9}> { t = Transpose <perm = [0,3,1,2]> (x)  f = Flatten (t)  y = MatMul (f, w) }"),
    ],
)  # fmt: skip
def test_passes_decline_what_no_runtime_computes(name: str, text: str) -> None:
    """Each of these models made its pass raise."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {text}')
    result = PassManager(passes=name, strict=True).run(model)
    assert_same_bytes(result.model.SerializeToString(), model.SerializeToString())


def test_a_text_that_is_no_utf_8_is_kept() -> None:
    model = onnx.ModelProto.FromString(model_with("info").replace(b"a_graph", b"the net"))
    texts = onnx.ModelProto(producer_name=MARK.decode(), doc_string=MARK.decode()).SerializeToString()
    model.MergeFromString(texts.replace(MARK, b"\xff\xfe" + MARK[2:]))
    model.graph.MergeFromString(
        onnx.GraphProto(doc_string=MARK.decode()).SerializeToString().replace(MARK, b"\xff\xfe" + MARK[2:])
    )
    result = PassManager("basic", strict=True).run(model).model
    assert result.SerializeToString().count(b"\xff\xfe" + MARK[2:]) == 3
    assert without_weights(model).SerializeToString().count(b"\xff\xfe" + MARK[2:]) == 3


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("eliminate_nop_slice", "y = Slice <starts = [0], ends = [2147483647, 2147483647]> (x)"),
        ("fuse_consecutive_concats", "a = Concat <axis = 0> (x, x)  y = Concat (a, x)"),
        ("fuse_relu_into_clip", "c = Cast <to = 9> (x)  a = Relu (c)  y = Clip (a)"),
        ("fuse_pad_into_max_pool", "a = Pad <pads = [0, 0, 1, 0, 0, 1], value = -inf> (x)  y = MaxPool <kernel_shape = [2]> (a)"),
    ],
)  # fmt: skip
def test_lists_and_attributes_that_do_not_fit_are_left_alone(name: str, body: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 9]> g (float[n,m] x) => (y) {{ {body} }}')
    assert not PassManager(passes=name, strict=True).run(model).changed


def test_an_odd_number_of_pads_is_refused() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[n,m] x) => (y) <int64[3] p = {1, 1, 1}, int64[1] axis = {0}>'
        "{ a = Relu (x)  y = Pad (a, p, , axis) }"
    )
    with pytest.raises(Decline, match="3 pads"):
        Pad.of(Model.load(model).graph.listed()[1])


@pytest.mark.parametrize(("domain", "inlined"), [("com.microsoft", {}), ("my", {"inline_functions": 1})])
def test_a_function_may_give_any_meaning_to_the_name_of_an_attribute(domain: str, inlined: dict[str, int]) -> None:
    """In the domain of ONNX Runtime, too: such a call is not malformed, and its function is used."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18, "{domain}": 1]>
        g (float[2,3] x) => (float[2,3] y) {{ y = {domain}.F <mode = 0, group = 0> (x) }}
        <domain: "{domain}", opset_import: ["": 18]>
        F <mode, group> (x) => (y) {{ c = Constant <value_int: int = @mode> () d = CastLike (c, x) y = Add (x, d) }}
    """)
    assert not PassManager(passes="eliminate_unused_function", strict=True).run(model).hits
    result = PassManager(passes="inline_functions", strict=True).run(model)
    assert result.hits == inlined
    assert compare(model, result.model).ok
