"""Constant regions: bombs are stopped before they go off, the rest is computed to the last bit."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from graphopt.analysis import infer_types
from graphopt.analysis.evaluate import ConstantRegion, Policy, evaluate, plan
from graphopt.ir import Model, paused_gc


def load(body: str, inputs: str = "float[2] x", opset: int = 18) -> Model:
    imports = f'["" : {opset}, "com.microsoft" : 1, "my" : 1]'
    return Model.load(parser.parse_model(f"<ir_version: 9, opset_import: {imports}> g ({inputs}) => (y) {{ {body} }}"))


def folded(
    model: Model, policy: Policy | None = None, *, types: bool = True
) -> tuple[ConstantRegion, dict[str, np.ndarray]]:
    if types:
        infer_types(model)
    region = plan(model.graph, policy or Policy())
    return region, {value.name: tensor.array() for value, tensor in evaluate(region).items()}


def reasons(region: ConstantRegion) -> dict[str, str]:
    return {node.op: str(reason) for node, reason in region.declined.items()}


BOMBS = {
    "ConstantOfShape": "s = Constant<value = int64[2] {100000, 100000}>() y = ConstantOfShape(s)",
    "Range": "a = Constant<value_int = 0>() b = Constant<value_int = 4000000000>() "
    "d = Constant<value_int = 1>() y = Range(a, b, d)",
    "Tile": "s = Constant<value = int64[1] {4000000000}>() c = Constant<value_floats = [1.0]>() y = Tile(c, s)",
    "Expand": "s = Constant<value = int64[2] {100000, 100000}>() c = Constant<value_float = 1.0>() y = Expand(c, s)",
    "Pad": "s = Constant<value = int64[2] {0, 4000000000}>() c = Constant<value_floats = [1.0]>() y = Pad(c, s)",
    "OneHot": "i = Constant<value_ints = [1, 2]>() d = Constant<value_int = 4000000000>() "
    "v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(i, d, v)",
    "Resize": "c = Constant<value = float[1,1,2,2] {1,2,3,4}>() s = Constant<value_ints = [1,1,100000,100000]>() "
    "y = Resize(c, , , s)",
    "Add": "a = Constant<value_floats = [1.0]>() s = Constant<value_ints = [30000, 1]>() "
    "t = Constant<value_ints = [1, 30000]>() b = ConstantOfShape(s) c = ConstantOfShape(t) y = Add(b, c)",
    "MatMul": "s = Constant<value_ints = [30000, 1]>() t = Constant<value_ints = [1, 30000]>() "
    "b = ConstantOfShape(s) c = ConstantOfShape(t) y = MatMul(b, c)",
    "Einsum": 's = Constant<value_ints = [30000]>() b = ConstantOfShape(s) y = Einsum<equation = "i,j->ij">(b, b)',
    "EyeLike": "c = Constant<value_ints = [40000, 40000]>() s = ConstantOfShape(c) y = EyeLike(s)",
    "Where": "s = Constant<value_ints = [30000, 1]>() t = Constant<value_ints = [1, 30000]>() "
    "b = ConstantOfShape(s) c = ConstantOfShape(t) d = Cast<to = 9>(b) y = Where(d, b, c)",
    "Gather": "s = Constant<value_ints = [9000000]>() i = ConstantOfShape<value = int64[1] {0}>(s) "
    "c = Constant<value = float[1,64] {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
    "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}>() y = Gather(c, i)",
}


@pytest.mark.parametrize("types", [True, False], ids=["typed", "untyped"])
@pytest.mark.parametrize("op", BOMBS)
def test_a_bomb_is_stopped_before_it_is_computed(op: str, types: bool) -> None:
    model = load(BOMBS[op])
    tracemalloc.start()
    start = time.perf_counter()
    region, results = folded(model, types=types)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not results
    assert op in reasons(region) or not region.nodes
    assert peak < 4 << 20
    assert seconds < 30  # computing one would take minutes, or all memory


def test_repeated_concat_is_stopped() -> None:
    body = "a = Constant<value_floats = [1.0]>() c0 = Concat<axis = 0>(a, a)"
    body += "".join(f" c{i} = Concat<axis = 0>(c{i - 1}, c{i - 1})" for i in range(1, 40)) + " y = Add(x, c39)"
    region, results = folded(load(body))
    assert sum(array.nbytes for array in results.values()) < 1 << 17
    assert "more than" in reasons(region)["Concat"] or "frees" in reasons(region)["Concat"]


def test_work_is_bounded() -> None:
    body = "s = Constant<value_ints = [3000, 3000]>() b = ConstantOfShape(s) c = MatMul(b, b) d = MatMul(c, b) "
    region, _ = folded(load(body + "e = ReduceSum(d) y = Add(e, x)"), Policy(max_work=1 << 30))
    assert "steps" in reasons(region)["MatMul"]


def test_growth_is_weighed_against_what_dies() -> None:
    weight = numpy_helper.from_array(np.arange(40000, dtype=np.float32).reshape(200, 200), "w")
    for readers, kept in ((["t"], True), (["t", "w"], False)):
        nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("Sum", [*readers, "x"], ["y"])]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", 1, [])],
            [helper.make_tensor_value_info("y", 1, None)],
            [weight],
        )
        model = Model.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
        region, results = folded(model)
        assert ("t" in results) is kept
        assert kept or "frees only 0" in reasons(region)["Transpose"]


def test_an_overridable_initializer_is_no_constant() -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[2] w) => (y) <float[2] w = {1, 2}> { y = Neg(w) }'
    region, results = folded(Model.load(parser.parse_model(text)))
    assert not results
    assert not region.declined


@pytest.mark.parametrize("body", ["y = RandomUniformLike(c)", "y = my.Op(c)", "y = NoSuchOp(c)", "y = Bernoulli(c)"])
def test_random_and_unknown_operators_are_never_computed(body: str) -> None:
    region, results = folded(load("c = Constant<value_floats = [1.0, 2.0]>() " + body))
    assert not results
    assert len(region.declined) == 1


def test_quantized_weights_are_kept_unless_asked() -> None:
    body = "q = Constant<value = int8[2] {1, -3}>() s = Constant<value_float = 0.5>() y = DequantizeLinear(q, s)"
    assert not folded(load(body))[1]
    assert folded(load(body), Policy(fold_qdq=True))[1]["y"].tolist() == [0.5, -1.5]


def test_nothing_is_computed_in_a_branch_that_never_runs() -> None:
    body = (
        "c = Constant<value = bool {0}>() y = If(c) <then_branch = t () => (a) { k = Constant<value_floats = [1.0]>() "
        "a = Neg(k) }, else_branch = e () => (b) { k2 = Constant<value_floats = [1.0]>() b = Neg(k2) }>"
    )
    model = load(body)
    graphs = {graph.name: graph for graph in model.graphs()}
    assert plan(graphs["t"], Policy()).nodes == []
    assert len(plan(graphs["e"], Policy()).nodes) == 1


def test_only_small_results_in_a_body_that_may_not_run() -> None:
    body = (
        "y = If(b) <then_branch = t () => (a) { s = Constant<value_ints = [1000, 1000]>() a = ConstantOfShape(s) }, "
        "else_branch = e () => (d) { k = Constant<value_floats = [1.0]>() d = Neg(k) }>"
    )
    model = load(body, "bool b")
    infer_types(model)
    graphs = {graph.name: graph for graph in model.graphs()}
    assert "more than" in reasons(plan(graphs["t"], Policy()))["ConstantOfShape"]
    assert len(plan(graphs["e"], Policy()).nodes) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("a = Constant<value_ints = [7, 8]>() z = Constant<value_ints = [2, 0]>() y = Div(a, z)", "division by zero"),
        ("a = Constant<value_ints = [7, 8]>() z = Constant<value_ints = [2, 0]>() y = Mod(a, z)", "division by zero"),
        (
            "a = Constant<value_ints = [-9223372036854775808]>() z = Constant<value_ints = [-1]>() y = Div(a, z)",
            "division overflows",
        ),
        ("a = Constant<value = float[0,3] {}>() y = Einsum<equation = \"ij,kj->ik\">(a, a)", "no NumPy kernel"),
        ("a = Constant<value = float[1,4,1,1] {1,2,3,4}>() y = DepthToSpace<blocksize = 0>(a)", "counts less than one"),
        ("a = Constant<value_floats = [1.0]>() i = Constant<value_ints = [5]>() y = Gather(a, i)", "cannot be computed"),
    ],
)  # fmt: skip
def test_what_kills_a_runtime_never_reaches_it(body: str, reason: str) -> None:
    region, results = folded(load(body))
    assert not results
    assert any(reason in str(text) for text in region.declined.values()), region.declined


def test_one_bad_node_does_not_spoil_the_others() -> None:
    body = "c = Constant<value_floats = [1.0, 2.0]>() i = Constant<value_ints = [9]>() "
    body += "a = Exp(c) bad = GatherElements(a, i) down = Relu(bad) b = Log(a) d = Tanh(c) y = Sum(x, b, d, down)"
    region, results = folded(load(body))
    assert set(results) == {"b", "d"}
    assert set(reasons(region)) == {"GatherElements", "Relu"}


def test_integer_and_float_parts_meet() -> None:
    body = (
        "a = Constant<value_ints = [2, 3]>() b = Mul(a, a) c = Cast<to = 1>(b) d = Sqrt(c) e = Exp(d) f = Cast<to = 7>(e) "
        "g = Add(f, a) h = Cast<to = 1>(g) y = Mul(x, h)"
    )
    _, results = folded(load(body))
    assert results["h"].tolist() == [float(int(np.exp(np.float32(2)))) + 2, float(int(np.exp(np.float32(3)))) + 3]


def test_operands_too_many_are_not_written_to() -> None:
    model = load("a = Constant<value_floats = [1.0]>() b = Constant<value_floats = [2.0]>() y = Div(a, a, b)")
    assert not folded(model)[1]
    assert model.graph.values["b"].const() == [2.0]


def test_sizes_need_no_types() -> None:
    body = (
        "a = Constant<value_ints = [2]>() b = Constant<value_ints = [3]>() s = Concat<axis = 0>(a, b) t = Mul(s, s) "
        "c = ConstantOfShape(t) y = Add(x, c)"
    )
    _, results = folded(load(body, "float[4,9] x"), types=False)
    assert results["c"].shape == (4, 9)


NARROW = [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.INT4, TensorProto.UINT4]


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_types_move_bit_by_bit(dtype: int) -> None:
    raw = np.arange(12, dtype=np.uint8 if dtype != TensorProto.BFLOAT16 else np.uint16) % 16
    array = raw.reshape(3, 4).astype(helper.tensor_dtype_to_np_dtype(dtype))
    weight = onnx.helper.make_tensor("w", dtype, [3, 4], array.astype(np.float32).ravel())
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("Gather", ["t", "i"], ["y"], axis=0),
    ]  # fmt: skip
    index = numpy_helper.from_array(np.asarray([3, -4, 1]), "i")
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", dtype, None)], [weight, index])
    opsets = [helper.make_opsetid("", 21)]
    model = Model.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    region, results = folded(model)
    assert not region.declined
    expected = numpy_helper.to_array(weight).T[[3, 0, 1]]
    assert results["y"].dtype == expected.dtype
    assert results["y"].tobytes() == expected.tobytes()


def test_strings_move() -> None:
    body = 'w = Constant<value_strings = ["a", "b", "c"]>() i = Constant<value_ints = [2, 0]>() y = Gather(w, i)'
    assert [str(s) for s in folded(load(body))[1]["y"]] == ["c", "a"]


def test_infinities_and_signs_survive() -> None:
    body = "a = Constant<value_floats = [0.0, -0.0, 1.0]>() y = Reciprocal(a)"
    assert folded(load(body))[1]["y"].tolist() == [np.inf, -np.inf, 1.0]


AGREED = {
    "y = Ceil(a)": [-1.0, -0.0, 2.0],
    "y = Floor(a)": [-2.0, -1.0, 1.0],
    "lo = Constant<value_float = -1.0>() hi = Constant<value_float = 1.0>() y = Clip(a, lo, hi)": [-1.0, -0.25, 1.0],
    "lo = Constant<value_float = 0.0>() y = Clip(a, lo)": [0.0, 0.0, 1.5],
    "d = Cast<to = 11>(a) e = Div(d, d) y = Cast<to = 1>(e)": [1.0, 1.0, 1.0],
}
"""What is made of -1.5, -0.25 and 1.5."""


@pytest.mark.parametrize("body", AGREED)
def test_what_is_the_same_to_every_runtime_takes_none(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.analysis.evaluate.run", lambda *_: pytest.fail("a session was opened"))
    found = folded(load(f"a = Constant<value_floats = [-1.5, -0.25, 1.5]>() {body}"))[1]["y"]
    assert found.dtype == np.float32
    assert found.tobytes() == np.array(AGREED[body], np.float32).tobytes()


@pytest.mark.parametrize("numbers", [[0.0, -0.0], [-0.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_clipping_that_may_differ_is_left_to_the_runtime(numbers: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (y) <float[2] a = {0, 0}, float lo = {0}> '
        "{ c = Clip(a, lo) y = Add(x, c) }"
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(numbers, np.float32), "a"))
    asked = []
    monkeypatch.setattr("graphopt.analysis.evaluate.run", lambda nodes, wanted, known: asked.append(nodes) or {})
    folded(Model.load(model))
    assert asked


def test_captured_constants_are_operands() -> None:
    body = (
        "k = Constant<value_floats = [2.0]>() y = If(b) <then_branch = t () => (a) { a = Neg(k) }, "
        "else_branch = e () => (d) { d = Exp(k) }>"
    )
    model = load(body, "bool b")
    infer_types(model)
    found = {v.name: t.array().tolist() for g in model.graphs() for v, t in evaluate(plan(g, Policy())).items()}
    assert found["a"] == [-2.0]
    assert found["d"] == [pytest.approx(np.exp(2.0))]


def test_planning_is_linear() -> None:
    def seconds(count: int) -> float:
        nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
        nodes += [helper.make_node("Mul", ["x", f"v{i}"], [f"u{i}"]) for i in range(1, count + 1)]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", 1, [2])], [helper.make_empty_tensor_value_info(f"u{count}")],
            [numpy_helper.from_array(np.ones(2, np.float32), "v0")],
        )  # fmt: skip
        model = Model.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
        return min(once(model) for _ in range(4))

    def once(model: Model) -> float:
        with paused_gc():  # a collection of everything that other tests left would be counted here
            start = time.process_time()
            plan(model.graph, Policy())
            return time.process_time() - start

    assert seconds(4000) < 10 * max(seconds(1000), 0.01)
