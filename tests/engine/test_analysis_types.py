"""Types: what is trusted, what is not, and that nothing malformed gets further than its own node."""

from __future__ import annotations

import time
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser, shape_inference

from graphopt.analysis import ShapeAnalysis, infer_types
from graphopt.analysis.nodes import infer_node
from graphopt.analysis.propagation import contents_may_explode
from graphopt.analysis.skeleton import Skeleton
from graphopt.ir import Model, TensorType, paused_gc
from graphopt.system.sessions import open_session

IMPORTS = '["" : 18, "com.microsoft" : 1, "my" : 1]'


def load(text: str) -> Model:
    return Model.load(parser.parse_model(f"<ir_version: 9, opset_import: {IMPORTS}> {text}"))


def shapes(model: Model) -> dict[str, tuple | None]:
    infer_types(model)
    return {name: value.shape for graph in model.graphs() for name, value in graph.values.items()}


def test_stale_value_info_is_not_believed() -> None:
    found = shapes(load("g (float[N,3] x) => (float[8,8] y) <float[5,5] a> { a = Relu(x) y = Neg(a) }"))
    assert found["a"] == ("N", 3)
    assert found["y"] == ("N", 3)


def test_names_at_outputs_are_not_believed() -> None:
    model = load("g (float[1,3,N,N] x) => (float[1,3,N,N] y) { y = MaxPool<kernel_shape = [2,2], strides = [2,2]>(x) }")
    assert shapes(model)["y"] != (1, 3, "N", "N")


def test_declared_inputs_of_bodies_are_not_believed() -> None:
    model = load(
        "g (float[N,M] x, int64 k, bool c) => (y) { y = Loop(k, c, x) <body = b (int64 i, bool d, float[P,N] s) => (e, t) "
        "{ e = Identity(d) t = Concat<axis = 0>(s, x) }> }"
    )
    found = shapes(model)
    assert found["s"] == (None, "M")  # what every round keeps of the first value, not the dimensions declared
    assert found["y"] == (None, "M")


def test_loops_keep_the_shapes_that_every_round_keeps() -> None:
    model = load(
        "g (float[N,6,H,W] x, int64 k, bool c) => (y, z) { y = Loop(k, c, x) "
        "<body = b (int64 i, bool d, float s) => (e, t) { e = Identity(d) t = Relu(s) }> z = Neg(y) }"
    )
    assert {shapes(model)[name] for name in "stz"} == {("N", 6, "H", "W")}


def test_a_loop_without_trip_count_or_condition_is_not_malformed() -> None:
    proto = parser.parse_model(
        f"<ir_version: 9, opset_import: {IMPORTS}> g (float[3] x, int64 k) => (y) {{ y = Loop(k, k, x) "
        "<body = b (int64 i, bool d, float s) => (e, t) { e = Identity(d) t = Relu(s) }> }"
    )
    proto.graph.node[0].input[1] = ""
    assert shapes(Model.load(proto))["t"] == (3,)
    proto.graph.node[0].input[0] = ""
    assert shapes(Model.load(proto))["t"] == (3,)


CAPTURING = """g (float[1,6,4,5] x, bool c {}) => (y) <int64[5] s = {{1,2,3,4,5}}> {{
  k = Constant<value_ints = [1,6,-1]>()
  y = If(c) <then_branch = a () => (o) {{
    w = If(c) <then_branch = d () => (u) {{ t = Reshape(x, s) u = Reshape(t, k) }}, else_branch = f () => (v) {{ v = Reshape(x, k) }}>
    o = Relu(w)
  }}, else_branch = b () => (e) {{ e = Reshape(x, k) }}>
}}"""


def test_bodies_see_what_constants_of_outer_graphs_hold() -> None:
    found = shapes(load(CAPTURING.format("")))
    assert found["t"] == (1, 2, 3, 4, 5)
    assert found["y"] == found["u"] == found["e"] == (1, 6, 20)


def test_bodies_do_not_see_what_a_caller_may_override() -> None:
    found = shapes(load(CAPTURING.format(", int64[5] s")))
    assert found["t"] is not None
    assert not any(isinstance(dim, int) for dim in found["t"])


def test_custom_operators_are_believed() -> None:
    found = shapes(load("g (float[N,3] x) => (y) <float[N,8] a> { a = my.Op(x) y = Relu(a) }"))
    assert found["a"] == ("N", 8)
    assert found["y"] == ("N", 8)


def test_custom_operators_are_believed_less_when_declarations_are_stale() -> None:
    model = load("g (float[N,3] x) => (y) <float[1,8] a, float[1,4] z> { z = Relu(x) a = my.Op(z) y = Relu(a) }")
    found = shapes(model)
    assert found["a"] == (None, None)
    assert all(not isinstance(dim, int) for dim in found["y"] or (1,))
    assert model.graph.values["y"].dtype == 1


@pytest.mark.parametrize(
    "bad",
    [
        "b = Reshape(x)", "b = Concat<axis = 7>(x, x)", "b = Conv<strides = [0]>(x, x)", "b = NoSuchOp(x)",
        "b = unknown.Op(x)", "b = Transpose<perm = [5]>(x)", "b = Gather(x)", "b = Add(x, i)", "b = MatMul(x, i)",
        "b = Split(x)", 'b = Einsum<equation = "ii->i">(x)', "b = Slice(x)", "b = Cast<to = 99>(x)", "b = Constant()",
        "b = Squeeze<axes = [9]>(x)", "b = If(x)", "b = Loop(x)", "b = Flatten<axis = -9>(x)", "b = Tile(x, x)",
        "b = TopK(x)", "b = Pad(x)", "b = Resize(x)", "b = ConstantOfShape(i)", "b = OneHot(x)", "b = Expand(x, x)",
        "b = Unsqueeze(x)", "b = Softmax<axis = 5>(x)", "b = DepthToSpace(x)", "b = ReduceSum(x, x)", "b = Shape()",
        'b = EyeLike("")', 'b = EyeLike("", "")', 'b = RegexFullMatch<pattern = "a">("")', "b = Relu(x, x, x)",
        "b = Conv<group = -1>(x, x)", "b = DepthToSpace<blocksize = 0>(x)", "b = MaxPool<kernel_shape = [2, -1]>(x)",
        "b, q = Split<num_outputs = 1>(x)", "b, q, r = Split<num_outputs = 2>(x)",
    ],
)  # fmt: skip
def test_a_malformed_node_harms_no_other(bad: str) -> None:
    model = load(f"g (float[N,3] x, int64[2] i) => (y, z) {{ {bad} z = Neg(b) a = Relu(x) y = Shape(a) }}")
    infer_types(model)
    assert model.graph.values["a"].shape == ("N", 3)
    assert model.graph.values["y"].type == TensorType(7, (2,))
    analysis = ShapeAnalysis(model)
    assert analysis.to_dims(analysis.shape(model.graph.values["a"])) == ("N", 3)


@pytest.mark.parametrize(
    "bad", ["Conv <group = -1>", "com.microsoft.QLinearConv <strides = [1, 0]>", "LRN <size = 3.5>"]
)
def test_attributes_that_mean_nothing_make_a_node_malformed(bad: str) -> None:
    """No rule reads such a node, not even one that reads its attributes without asking."""
    model = load(f"g (float[N,3] x) => (y) {{ y = {bad} (x, x) }}")
    assert next(iter(model.graph)).op.startswith("malformed ")


def test_a_node_that_breaks_inference_as_a_whole() -> None:
    model = load("g (float[N,3] x) => (float y) { a = Reshape(x) b = Relu(x) c = Shape(b) y = Neg(a) }")
    found = shapes(model)
    assert found["b"] == ("N", 3)
    assert found["c"] == (2,)


def test_constants_have_the_type_that_they_hold() -> None:
    model = load("g (float[2] x) => (y) <int64[9] c> { c = Constant<value_floats = [1.0, 2.0]>() y = Add(x, c) }")
    infer_types(model)
    assert model.graph.values["c"].type == TensorType(1, (2,))


def test_generated_names_are_never_used_again() -> None:
    model = load("g (float[unk__0,2] x) => (y) { a = NonZero(x) y = Neg(a) }")
    infer_types(model)
    first = model.graph.values["y"].shape
    infer_types(model)
    second = model.graph.values["y"].shape
    assert first is not None
    assert second is not None
    assert len({first[1], second[1], "unk__0"}) == 3


def test_subgraphs_and_functions() -> None:
    text = (
        "g (float[N,3] x, bool c) => (y) { f = my.f(x) y = If(c) <then_branch = t () => (a) { a = Relu(f) }, "
        "else_branch = e () => (b) { b = Transpose<perm = [0,1]>(x) }> } "
        '<domain: "my", opset_import: ["" : 18]> f (p) => (q) { q = Neg(p) }'
    )
    found = shapes(load(text))
    assert found["a"] == found["b"] == found["y"] == found["f"] == ("N", 3)
    assert found["q"] is None


def test_weights_are_not_copied() -> None:
    weight = numpy_helper.from_array(np.zeros((2000, 1000), np.float32), "w")
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros((1000, 9), np.float32)))
    nodes = [constant, helper.make_node("MatMul", ["w", "k"], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", 1, None)], [weight])
    model = Model.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert Skeleton(model).proto.ByteSize() < 500
    assert shapes(model)["y"] == (2000, 9)


def test_data_propagation_cannot_explode() -> None:
    body = "c0 = Shape(x)" + "".join(f" c{i} = Concat<axis = 0>(c{i - 1}, c{i - 1})" for i in range(1, 60))
    model = load(f"g (float[N,3] x) => (y) {{ {body} y = Neg(c59) }}")
    assert contents_may_explode(model)
    start = time.perf_counter()
    infer_types(model)
    ShapeAnalysis(model)
    assert time.perf_counter() - start < 60  # exponential work would not end


def test_a_dense_network_does_not_look_like_an_explosion() -> None:
    body = "c0 = Conv(x, w)" + "".join(f" c{i} = Concat<axis = 1>(c{i - 1}, c{i - 1})" for i in range(1, 40))
    assert not contents_may_explode(load(f"g (float[N,3,8,8] x, float[4,3,3,3] w) => (y) {{ {body} y = Neg(c39) }}"))


NODES = [
    "y = Relu(x)", "y = Add(x, x)", "y = Shape(x)", "y = Cast<to = 7>(x)", "y = Transpose<perm = [1,0]>(x)",
    "y = Gather(x, i)", "y = Reshape(x, i)", "y = ReduceMean<keepdims = 0>(x)", "y, z = TopK(x, k)",
    "y = Equal(x, x)", "y = MatMul(x, w)", "y, z = Split<num_outputs = 2>(x)", "y = LayerNormalization(x, w)",
    "y = Where(c, x, x)", "y = ArgMax(x)", "y = Unsqueeze(x, k)", "y, z = Dropout(x)", "y = GatherND(x, i)",
    "y = Trilu(x)", "y = QuantizeLinear(x, s)", "y = DequantizeLinear(i, s)", "y = Einsum<equation = \"ij->ji\">(x)",
]  # fmt: skip


@pytest.mark.parametrize("body", NODES)
def test_single_nodes_get_the_types_of_the_whole(body: str) -> None:
    model = load(
        f"g (float[4,6] x, int64[2] i, float[6,2] w, bool c, float s) => (y) <int64[1] k = {{1}}> {{ {body} }}"
    )
    infer_types(model)
    node = model.graph.first
    assert node is not None
    for value, found in zip(node.outputs, infer_node(node), strict=True):
        assert value is not None
        assert found is None or found.dtype == value.dtype
        assert found is None or value.shape is None or len(found.shape) == len(value.shape)


@pytest.mark.parametrize("attrs", ["", '<auto_pad = "SAME_UPPER">', "<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"])
@pytest.mark.parametrize("weight", ["float[8,3,3,3]", "float[a,b,3,3]", "float16[8,3,3,3]"])
@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
def test_a_convolution_of_unknown_rank_has_the_type_that_the_standard_says(dtype: str, weight: str, attrs: str) -> None:
    """It is told without the standard's inference, which refuses operands of two types, and of others than floats."""
    text = f"<ir_version: 9, opset_import: {IMPORTS}> g ({dtype} x, {weight} w) => (y) {{ y = Conv {attrs} (x, w) }}"
    proto = parser.parse_model(text)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    node = Model.load(proto).graph.first
    assert node is not None
    types = {info.name: info.type for info in proto.graph.input}
    try:
        told = shape_inference.infer_node_outputs(onnx.defs.get_schema("Conv", 18), proto.graph.node[0], types)["y"]
    except onnx.checker.ValidationError:
        assert infer_node(node) == [None]
    else:
        assert (told.tensor_type.elem_type, told.tensor_type.HasField("shape")) == (onnx.TensorProto.FLOAT, False)
        assert infer_node(node) == [TensorType(onnx.TensorProto.FLOAT, None)]


@pytest.mark.slow
def test_the_standards_own_cases() -> None:
    """Every shape that is claimed for the node tests of ONNX is the one that their expected outputs have."""
    from onnx.backend.test.case.node import collect_testcases

    claimed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        model = Model.load(case.model)
        infer_types(model)
        analysis = ShapeAnalysis(model, strict=True)
        for value, expected in zip(model.graph.outputs, case.data_sets[0][1], strict=False):
            array = numpy_helper.to_array(expected) if isinstance(expected, onnx.TensorProto) else expected
            shape = analysis.shape(value)
            if not isinstance(array, (np.ndarray, np.generic)) or shape is None:
                continue
            assert len(shape) == array.ndim, case.name
            assert all(not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True)), case.name
            claimed += 1
    assert claimed > 2000


def test_linear_time() -> None:
    def seconds(count: int) -> float:
        nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
        inputs = [helper.make_tensor_value_info("v0", 1, ["N", 3])]
        graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(f"v{count}")])
        source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        return min(once(Model.load(source)) for _ in range(4))

    def once(model: Model) -> float:
        with paused_gc():  # a collection of everything that other tests left would be counted here
            start = time.process_time()
            infer_types(model)
            ShapeAnalysis(model)
            return time.process_time() - start

    assert seconds(8000) < 12 * max(seconds(2000), 0.02)


def test_agrees_with_inference_on_plain_graphs() -> None:
    proto = parser.parse_model(
        f"<ir_version: 9, opset_import: {IMPORTS}> g (float[N,3,8,8] x, float[4,3,3,3] w) => (y) "
        "{ a = Conv(x, w) b = Relu(a) c = GlobalAveragePool(b) d = Flatten(c) y = Softmax(d) }"
    )
    expected = {i.name: i.type for i in shape_inference.infer_shapes(proto).graph.value_info}
    found = shapes(Model.load(proto))
    for name, proto_type in expected.items():
        dims = [d.dim_value or d.dim_param for d in proto_type.tensor_type.shape.dim]
        assert list(found[name] or ()) == dims


CONTRIB = {
    "attention": ("y = com.microsoft.Attention <num_heads = 2> (x, w, b)", {"w": (16, 48), "b": (48,)}),
    "attention of other values": (
        "y = com.microsoft.Attention <num_heads = 2, qkv_hidden_sizes = [16, 16, 32]> (x, w, b)",
        {"w": (16, 64), "b": (64,)},
    ),
    "attention of heads": ("y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x)", {}),
    "attention of wide values": (
        "v = MatMul (x, w) y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, v)",
        {"w": (16, 24)},
    ),
    "skips": ("y = com.microsoft.SkipLayerNormalization (x, x, g)", {"g": (16,)}),
    "skips, simplified": ("y = com.microsoft.SkipSimplifiedLayerNormalization (x, x, g)", {"g": (16,)}),
    "gelu": ("y = com.microsoft.BiasGelu (x, g)", {"g": (16,)}),
    "simplified": ("y = SimplifiedLayerNormalization <axis = -1> (x, g)", {"g": (16,)}),
    "rotated": (
        "y = com.microsoft.RotaryEmbedding <num_heads = 0> (x, places, cosines, cosines)",
        {"places": (2, 5), "cosines": (8, 8)},
    ),
    "heads that share keys": (
        "y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (x, k, k, , , last, total)",
        {"k": (2, 5, 8), "last": (2,), "total": ()},
    ),
    "heads that share keys, packed": (
        "y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, , , , , last, total)",
        {"q": (2, 5, 64), "last": (2,), "total": ()},
    ),
    "attention with a cache": (
        "y, pk, pv = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x, , , , past, past)",
        {"past": (2, 2, 3, 8)},
    ),
    "attention of one row": (
        "s = Slice (x, zero, one, one) y = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 2> (s, c, c)",
        {"c": (2, 2, 3, 8), "zero": (1,), "one": (1,)},
    ),
    "words": (
        "y, index, sums = com.microsoft.EmbedLayerNormalization (words, , w, w, , g, g)",
        {"words": (2, 5), "w": (16, 16), "g": (16,)},
    ),
    "experts": (
        "y = com.microsoft.MoE <k = 1> (x, router, up, , down)",
        {"router": (10, 2), "up": (2, 32, 16), "down": (2, 16, 32)},
    ),
    "bytes by dynamic scales": (
        "y = com.microsoft.DynamicQuantizeMatMul (x, bytes, s)",
        {"bytes": (16, 24), "s": (1,)},
    ),
    "bytes to floats": (
        "q, a, zero_point = DynamicQuantizeLinear (x) y = com.microsoft.MatMulIntegerToFloat (q, bytes, a, s)",
        {"bytes": (16, 24), "s": (1,)},
    ),
    "attention of bytes": (
        "q, a, zero_point = DynamicQuantizeLinear (x) "
        "y = com.microsoft.QAttention <num_heads = 2> (q, bytes, b, a, s, , zero_point, middle)",
        {"bytes": (16, 48), "b": (48,), "s": (1,), "middle": ()},
    ),
    "slices of packed integers": (
        "y = com.microsoft.GatherBlockQuantized <bits = 4, block_size = 16, quantize_axis = 1> (packed, words, scales)",
        {"packed": (6, 8), "words": (2, 5), "scales": (6, 1)},
    ),
    "rows that are quantized": (
        "n = com.microsoft.QuantizeLinear (x, s0) y = com.microsoft.DequantizeLinear (n, s0)",
        {"s0": ()},
    ),
}
KINDS = {
    "places": np.int64,
    "last": np.int32,
    "total": np.int32,
    "words": np.int32,
    "bytes": np.int8,
    "middle": np.int8,
    "packed": np.uint8,
    "zero": np.int64,
    "one": np.int64,
}
NUMBERS = {"last": 4, "total": 5, "one": 1, "s": 0.02, "s0": 0.02, "scales": 0.02}


@pytest.mark.parametrize("name", CONTRIB)
def test_shapes_behind_the_runtimes_own_operators_are_known(name: str) -> None:
    """As the runtime itself gives them, and of what follows, too."""
    body, constants = CONTRIB[name]
    text = f"g (float[2,5,16] x) => (y, z, r) {{ {body} t = Transpose <perm = [0, 2, 1]> (y) z = MatMul (x, p) r = Relu (t) }}"
    model = parser.parse_model(f"<ir_version: 9, opset_import: {IMPORTS}> {text}")
    for number, (key, dims) in enumerate({**constants, "p": (16, 3)}.items()):
        drawn = np.random.default_rng(number).standard_normal(dims)
        array = np.full(dims, NUMBERS[key]) if key in NUMBERS else abs(drawn) if key in KINDS else drawn
        model.graph.initializer.append(numpy_helper.from_array(array.astype(KINDS.get(key, np.float32)), key))
    found = shapes(Model.load(model))
    wanted = open_session(model).run(["y", "z", "r"], {"x": np.ones((2, 5, 16), np.float32)})
    assert [found[key] for key in ("y", "z", "r")] == [each.shape for each in wanted]


def test_what_is_packed_or_of_other_ranks_is_not_guessed() -> None:
    packed = load("g (float[2,5,2,3,8] x) => (y) { y = com.microsoft.MultiHeadAttention <num_heads = 2> (x) }")
    assert shapes(packed)["y"] is None
    open_weight = load(
        "g (float[2,5,16] x, float w, float b) => (y) { y = com.microsoft.Attention <num_heads = 2> (x, w, b) }"
    )
    assert shapes(open_weight)["y"] is None


@pytest.mark.parametrize(("left", "right"), [("[3,4]", "[2,4,5]"), ("[2,3,4]", "[4,5]"), ("[]", "[2,4,5]")])
def test_ellipses_over_unlike_numbers_of_axes_are_survived(left: str, right: str) -> None:
    """Inference of onnx before 1.23 ends the process with a segmentation fault."""
    view = Model.load(
        parser.parse_model(
            f'<ir_version: 9, opset_import: ["": 17]> g (float{left} a, float{right} b) => (y, z) '
            '{ c = Relu (a) y = Einsum <equation = "...km,...kn->...mn"> (c, b) z = Relu (b) }'
        )
    )
    infer_types(view)
    assert view.graph.values["z"].shape == (2, 4, 5)[-len(right.split(",")) :]


def test_inference_gets_the_numbers_of_ranges() -> None:
    """Before onnx 1.23 it ends the process where a constant operand of `Range` has none, or indices have no rank."""
    for kind in ("double", "float", "int64", "int32"):
        found = shapes(
            load(
                f"g () => ({kind}[n] y) <{kind} a = {{1}}, {kind} b = {{7}}, {kind} c = {{2}}> {{ y = Range(a, b, c) }}"
            )
        )
        assert found["y"] == (3,)
    text = "g (float[1,1,2,2] x, int64[] i) => (float[a,b,c,d] y) { y = MaxUnpool<kernel_shape = [2,2]>(x, i) }"
    assert len(shapes(load(text))["y"] or ()) in (0, 4)


def test_what_our_rules_know_goes_on_to_readers() -> None:
    model = Model.load(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 11]>
        g (float[1,2,1,3] x) => (float[?,?] z)
        <int64[2] copied = {0, 0}>
        { s = Squeeze (x)  y = Reshape (s, copied)  z = Transpose (y) }
    """)
    )
    infer_types(model)
    assert [node.result.shape for node in model.graph] == [(2, 3), (2, 3), (3, 2)]


def test_readers_of_what_our_rules_found_are_put_to_the_standard() -> None:
    """As in a model with an operator of another domain: a pass that brings one in is not to make more known."""
    model = Model.load(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["" : 11]> g (float[1,1] x, int64[2] s) => (int32[a,b] y, float t)
            <int8[1,1] w = {1}, int64[2] s = {0, 0}>
            { r = Reshape (x, s)  q, t, z = DynamicQuantizeLinear (r)  y = MatMulInteger (q, w) }
        """)
    )
    infer_types(model)
    assert model.graph.values["y"].shape == (None, 1)


def test_inference_once_more_names_sizes_behind_contrib_operators_alike() -> None:
    """What a rule of ours told in the first inference had the names of that, and all around it those of the second."""
    model = Model.load(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
            g (float[?,n,12] x, float[n,2] c) => (float[a,b,d] y) <int64[1] p = {0}, int64[3] s = {0, 0, 12}>
            { r = Abs (x)  t = com.microsoft.RotaryEmbedding (r, p, c, c)  y = Reshape (t, s) }
        """)
    )
    for _ in range(2):
        infer_types(model)
        (first, *others) = [model.graph.values[name].shape for name in "rty"]
        assert others == [first, first]


@pytest.mark.parametrize(
    "reader",
    [
        "f = my.F(l)",
        "f = Loop(k, t, l) <body = b (int64 i, bool c, float s) => (bool d, float e) {d = Identity(c) e = Exp(s)}>",
    ],
)
def test_a_second_inference_knows_no_more_behind_operators_that_read_types(reader: str) -> None:
    model = Model.load(parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18, "ai.onnx.ml": 3, "my": 1]>
        g (int64[n,3] x) => (float y) <int64 k = {{2}}, bool t = {{1}}> {{
            a = Abs(x)
            l = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_floats = [1.0, 2.0]>(a)
            {reader}
            y = Relu(f)
        }}
        <domain: "my", opset_import: ["": 18]> F (a) => (b) {{ c = Exp(a) b = Neg(c) }}
    """))  # fmt: skip
    first = shapes(model)
    assert first["y"] == ("n", 3)
    assert shapes(model) == first
