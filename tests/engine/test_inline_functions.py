"""Inlining as an option of a run, and what the checker would not let into a golden case."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from graphopt.manager import PassManager, optimize
from graphopt.rewrite import Options
from graphopt.verify import assert_equivalent

HEAD = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]> '
MODEL = parser.parse_model(
    HEAD + "g (float[2] x) => (float[2] y) { a = local.f (x)  y = local.f (a) }"
    '<domain: "local", opset_import: ["" : 18]> f (a) => (r) { b = Neg (a)  r = Exp (b) }'
)


def test_functions_stay_at_basic_unless_asked() -> None:
    assert [n.op_type for n in optimize(MODEL).graph.node] == ["f", "f"]


@pytest.mark.parametrize("level", ["extended", "layout", "all"])
def test_levels_above_basic_inline(level: str) -> None:
    result = optimize(MODEL, level, target="avx2", strict=True)
    assert [n.op_type for n in result.graph.node] == ["Neg", "Exp", "Neg", "Exp"]
    assert not result.functions
    log = PassManager(level, target="avx2").run(MODEL)
    assert [event.rule for event in log.events] == ["inline_functions"] * 2 + ["eliminate_unused_function"]
    kept = optimize(MODEL, level, target="avx2", strict=True, skip=["inline_functions"])
    assert [n.op_type for n in kept.graph.node] == ["f", "f"]


@pytest.mark.parametrize("settings", [{"inline_functions": True}, {"options": Options(inline_functions=True)}])
def test_the_option_inlines_before_anything_else(settings: dict) -> None:
    result = PassManager(verify=True, strict=True, check=True, **settings).run(MODEL)
    assert [n.op_type for n in result.model.graph.node] == ["Neg", "Exp", "Neg", "Exp"]
    assert not result.model.functions
    assert result.pipeline.startswith("inline_functions,")
    assert not [op for op in result.before.ops if op.startswith("call ")]  # which is how the engine tells calls apart
    assert not [event for event in result.events if "call " in str(event)]


def test_a_pipeline_that_names_the_pass_runs_it_where_it_says() -> None:
    manager = PassManager(passes="eliminate_identity,inline_functions", inline_functions=True)
    assert str(manager.plan.pipeline) == "eliminate_identity,inline_functions"


def why_kept(model: onnx.ModelProto) -> str:
    result = PassManager(passes="inline_functions", strict=True, check=True, explain=True).run(model)
    assert not result.changed
    return "; ".join(sorted({miss.reason for miss in result.near_misses}))


def test_another_version_of_an_operator_is_kept() -> None:
    text = 'g (float[2,2] x) => (y) { y = local.f (x) } <domain: "local", opset_import: ["" : 17]> '
    model = parser.parse_model(HEAD + text + "f (a) => (r) { r = ReduceMax (a) }")
    assert why_kept(model) == "local::f uses ReduceMax of opset 17, the model has opset 18"


def test_a_newer_version_that_only_allows_more_is_taken() -> None:
    """The checker refuses such models, the runtime takes them."""
    text = 'g (float[2,2] x) => (float[2,2] y) { y = local.f (x) } <domain: "local", opset_import: ["" : 13]> '
    body = "f <axis: int = 0> (a) => (r) { b = Softmax <axis: int = @axis> (a)  c = Add (b, a)  r = Relu (c) }"
    model = parser.parse_model(HEAD + text + body)
    result = PassManager(passes="inline_functions", strict=True, check=True).run(model).model
    assert [n.op_type for n in result.graph.node] == ["Softmax", "Add", "Relu"]
    assert_equivalent(model, result)


@pytest.mark.parametrize(
    ("operator", "own", "model_has"),
    [("Softmax", 12, 13), ("Relu", 18, 13), ("Upsample <mode = 'nearest'>", 9, 18), ("Relu", 6, 14)],
)
def test_versions_that_differ_are_kept(operator: str, own: int, model_has: int) -> None:
    """The default of Softmax, a version that may lack a type, an operator that is gone, and one too old to be known."""
    head = HEAD.replace("18", str(model_has))
    text = f'g (float[2,2] x) => (y) {{ y = local.f (x) }} <domain: "local", opset_import: ["" : {own}]> '
    op_type, _, attributes = operator.partition(" ")
    node = f"{op_type} {attributes} (a, a)" if op_type == "Upsample" else f"{op_type} (a)"
    model = parser.parse_model(head + text + f"f (a) => (r) {{ r = {node} }}".replace("'", '"'))
    assert why_kept(model) == f"local::f uses {op_type} of opset {own}, the model has opset {model_has}"


def test_recursion_is_kept() -> None:
    text = 'g (float[2] x) => (y) { y = local.f (x) } <domain: "local", opset_import: ["" : 18, "local" : 1]> '
    model = parser.parse_model(HEAD + text + "f (a) => (r) { b = Neg (a)  r = local.f (b) }")
    assert why_kept(model) == "local::f calls itself"


def doubling(levels: int) -> onnx.ModelProto:
    """Functions that each call the one before twice."""
    head = '<domain: "local", opset_import: ["" : 18, "local" : 1]> '
    functions = [head + "f0 (a) => (r) { r = Neg (a) }"]
    functions += [
        head + f"f{k} (a) => (r) {{ b = local.f{k - 1} (a)  r = local.f{k - 1} (b) }}" for k in range(1, levels)
    ]
    text = f"g (float[2] x) => (float[2] y) {{ y = local.f{levels - 1} (x) }} "
    return parser.parse_model(HEAD + text + " ".join(functions))


def test_functions_that_multiply_are_kept() -> None:
    assert why_kept(doubling(40)) == f"inlining local::f39 would make {2**39} nodes"


def test_a_few_levels_are_inlined() -> None:
    result = optimize(doubling(4), inline_functions=True, passes="inline_functions", strict=True)
    assert [n.op_type for n in result.graph.node] == ["Neg"] * 8


def test_overloads_are_told_apart() -> None:
    model = parser.parse_model(
        HEAD + "g (float[2] x) => (float[2] y) { a = local.f:one (x)  y = local.f:two (a) }"
        '<domain: "local", overload: "one", opset_import: ["" : 18]> f (a) => (r) { r = Neg (a) }'
        '<domain: "local", overload: "two", opset_import: ["" : 18]> f (a) => (r) { r = Exp (a) }'
    )
    result = optimize(model, inline_functions=True, strict=True)
    assert [n.op_type for n in result.graph.node] == ["Neg", "Exp"]
    assert_equivalent(model, result)


def test_domains_that_only_the_function_imports_are_imported() -> None:
    head = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]> '
    model = parser.parse_model(
        head + "g (float[2] x) => (float[2] y) { y = local.f (x) }"
        '<domain: "local", opset_import: ["" : 18, "com.microsoft" : 1]> f (a) => (r) { r = com.microsoft.QuickGelu (a) }'
    )
    result = optimize(model, passes="inline_functions", strict=True)
    assert {o.domain: o.version for o in result.opset_import}["com.microsoft"] == 1
    assert [n.op_type for n in result.graph.node] == ["QuickGelu"]


def test_a_domain_of_calls_is_imported_as_the_function_has_it() -> None:
    """Otherwise the model got version 1 of it, and a function with its operators stayed for that."""
    model = parser.parse_model(
        HEAD + "g (float[2] x) => (y) { a = local.f (x)  y = local.k (a) }"
        '<domain: "local", opset_import: ["" : 18, "other" : 2]> f (a) => (r) { r = other.h (a) }'
        '<domain: "local", opset_import: ["" : 18, "other" : 2]> k (a) => (r) { r = other.Scale (a) }'
        '<domain: "other", opset_import: ["" : 18]> h (a) => (r) { r = Neg (a) }'
    )
    result = optimize(model, passes="inline_functions", strict=True)
    assert {o.domain: o.version for o in result.opset_import}["other"] == 2
    assert [n.op_type for n in result.graph.node] == ["Neg", "Scale"]


def test_graphs_do_not_get_too_deep_for_a_file() -> None:
    """Each function has a branch that calls the one before: inlined, they are branches in branches."""
    head = '<domain: "local", opset_import: ["" : 18, "local" : 1]> '
    functions = [head + "f0 (a, d) => (r) { r = Neg (a) }"]
    functions += [
        head + f"f{k} (a, d) => (r) {{ r = If (d) <then_branch = t () => (float[2] p) {{ p = local.f{k - 1} (a, d) }},"
        " else_branch = e () => (float[2] q) { q = Abs (a) }> }"
        for k in range(1, 60)
    ]
    text = "g (float[2] x, bool d) => (float[2] y) { y = local.f59 (x, d) } "
    model = parser.parse_model(HEAD + text + " ".join(functions))
    result = PassManager(passes="inline_functions", strict=True, explain=True).run(model)
    assert onnx.ModelProto.FromString(result.model.SerializeToString()).functions
    assert "29 graphs would be nested" in {miss.reason for miss in result.near_misses}


def test_devices_of_nodes_come_along() -> None:
    """Names in a function mean other tensors than the same ones where it is called: here its `a` is `b`."""
    model = parser.parse_model(
        '<ir_version: 11, opset_import: ["" : 18, "local" : 1]> g (float[4,4] x, float[4,4] b) => (float[4,4] y)'
        "{ i = Identity(x)  y = local.f (i, b) }"
        '<domain: "local", opset_import: ["" : 18]> f (b, a) => (r) { c = MatMul (b, a)  r = Exp (c) }'
    )
    model.configuration.add(name="two", num_devices=2)
    for node, names in ((model.functions[0].node[0], "bac"), (model.graph.node[1], "iby")):
        told = node.device_configurations.add(configuration_id="two", pipeline_stage=1)
        for device, name in enumerate(names):
            told.sharding_spec.add(tensor_name=name, device=[device])

    def said(node: onnx.NodeProto) -> list[tuple[str, list[int]]]:
        return [(each.tensor_name, list(each.device)) for each in node.device_configurations[0].sharding_spec]

    assert said(optimize(model).graph.node[0]) == [("x", [0]), ("b", [1]), ("y", [2])]
    product, last = optimize(model, inline_functions=True).graph.node
    assert said(product) == [("x", [0]), ("b", [1]), (product.output[0], [2])]
    assert not last.device_configurations
    onnx.checker.check_model(optimize(model, inline_functions=True), full_check=True)


def test_weights_in_a_function_are_stored_once() -> None:
    """Also those of bodies inside of it, wherever it is called: no call makes the model larger by them."""
    weight = numpy_helper.from_array(np.arange(1000, dtype=np.float32))
    head = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]> '
    model = parser.parse_model(
        head + "g (float[1000] x, bool c) => (float[1000] y) { a = local.f (x, c)  b = local.f (a, c)"
        " y = If (c) <then_branch = t () => (float[1000] o) { o = local.f (b, c) },"
        " else_branch = e () => (float[1000] p) { q = local.f (b, c)  p = local.f (q, c) }> }"
        '<domain: "local", opset_import: ["" : 18]> f (a, c) => (r) { w = Constant <value_int = 0> ()  s = Mul (a, w)'
        " r = If (c) <then_branch = t () => (o) { v = Constant <value_int = 0> ()  o = Add (s, v) },"
        " else_branch = e () => (p) { p = Neg (s) }> }"
    )
    for holder in (model.functions[0].node[0], model.functions[0].node[2].attribute[0].g.node[0]):
        holder.attribute[0].CopyFrom(helper.make_attribute("value", weight))
    for passes in ("inline_functions,eliminate_unused_function", None):
        result = PassManager("extended", passes=passes, strict=True, check=True).run(model).model
        onnx.checker.check_model(result, full_check=True)
        assert result.ByteSize() < model.ByteSize() + 4000
        assert_equivalent(model, result)


def test_calls_are_counted_one_by_one() -> None:
    """So that a bisection finds which of them it was."""
    for limit in (1, 2):
        result = PassManager("extended", limit=limit).run(MODEL)
        assert [n.op_type for n in result.model.graph.node] == (["Neg", "Exp", "f"], ["Neg", "Exp"] * 2)[limit - 1]
        assert len(result.events) == limit


def test_what_a_call_tells_goes_to_the_nodes_that_take_its_place() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g (float[2] x) => (float[2] y) { y = my.F (x) }
        <domain: "my", opset_import: ["" : 18]> F (x) => (y) { a = Neg (x) y = Relu (a) }""")
    call, inner = model.graph.node[0], model.functions[0].node[0]
    call.doc_string = "line 5"
    for key in ("namespace", "trace"):
        call.metadata_props.add(key=key, value="of the call")
    inner.metadata_props.add(key="trace", value="its own")
    negation, relu = optimize(model, "extended").graph.node
    assert {p.key: p.value for p in negation.metadata_props} == {"namespace": "of the call", "trace": "its own"}
    assert {p.key: p.value for p in relu.metadata_props} == {"namespace": "of the call", "trace": "of the call"}
    assert [negation.doc_string, relu.doc_string] == ["line 5", "line 5"]


@pytest.mark.parametrize("level", ["extended", "all"])
@pytest.mark.parametrize(("size", "stored"), [(300, 1), (3, 3)])
def test_a_large_constant_that_every_call_puts_out_is_stored_once(level: str, size: int, stored: int) -> None:
    """Its readers read it; what puts it out is an `Identity` each, where small ones are a `Constant` each."""
    text = f"g (float[{size}] x) => (float[{size}] a, float[{size}] b, float[{size}] c, float[{size}] d) "
    text += "{ a = local.f ()  b = local.f ()  c = local.f ()  d = Add (b, x) }"
    text += '<domain: "local", opset_import: ["" : 18]> f () => (r) { r = Constant () }'
    model = parser.parse_model(HEAD + text)
    numbers = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    value = helper.make_attribute("value", numpy_helper.from_array(numbers))
    model.functions[0].node[0].attribute.append(value)
    manager = PassManager(
        level, skip=["fold_constants", "fold_large_constants"], target="avx2", strict=True, check=True
    )
    result = manager.run(model).model
    constants = [n for n in result.graph.node if n.op_type == "Constant"]
    assert len(constants) + len(result.graph.initializer) == stored
    assert_equivalent(model, result, numerics="exact")
    assert not manager.run(result).changed


def test_types_in_the_body_of_an_inlined_scan_are_known_before_it_is_unrolled() -> None:
    model = parser.parse_model(
        HEAD + "g (float[20,4] x) => (float[20,4] y) { y = local.f (x) }"
        '<domain: "local", opset_import: ["" : 18]>'
        "f (x) => (y) { y = Scan <num_scan_inputs = 1, body = b (a) => (r) { r = Mul (a, a) }> (x) }"
    )
    result = optimize(model, "extended", target="avx2", strict=True)
    assert [n.op_type for n in result.graph.node] == ["Mul"]
    assert_equivalent(model, result)


GRAPH = parser.parse_graph("b () => (float[2] r) { r = Constant <value = float[2] {1, 2}> () }")
SPARSE = helper.make_sparse_tensor(
    helper.make_tensor("", onnx.TensorProto.FLOAT, [1], [3.0]),
    helper.make_tensor("", onnx.TensorProto.INT64, [1], [1]),
    [2],
)


@pytest.mark.parametrize(
    ("body", "default", "inlined"),
    [
        ("c = Constant <value : tensor = @t> ()  r = Add (x, c)", numpy_helper.from_array(np.ones(2, np.float32)), True),
        ("c = Constant <sparse_value : sparse_tensor = @t> ()  r = Add (x, c)", SPARSE, True),
        ("q = Constant <value = bool {1}> ()  r = If <then_branch : graph = @t, else_branch = e () => (float[2] s) { s = Exp (x) }> (q)", GRAPH, False),
    ],
)  # fmt: skip
def test_defaults_that_are_no_numbers(body: str, default: object, *, inlined: bool) -> None:
    model = parser.parse_model(
        HEAD + "g (float[2] x) => (float[2] y) { y = local.f (x) }"
        f'<domain: "local", opset_import: ["" : 18]> f <t> (x) => (r) {{ {body} }}'
    )
    del model.functions[0].attribute[:]
    model.functions[0].attribute_proto.append(helper.make_attribute("t", default))
    result = PassManager(passes="inline_functions", strict=True, check=True).run(model)
    assert (result.model.graph.node[0].op_type == "f") != inlined


@pytest.mark.parametrize("op", ["Own", "Relu"])
@pytest.mark.parametrize("level", ["basic", "all"])
def test_values_that_a_graph_attribute_reads_stay(op: str, level: str) -> None:
    """A function of the standard's domain may have one, and the standard's operators may be given one."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y)'
        f"{{ t = Neg (x)  u = Identity (t)  y = {op} <b = e () => (float[2] r) {{ r = Abs (u) }}> (x) }}"
        '<domain: "", opset_import: ["" : 18]> Own <b> (x) => (r) { r = Exp (x) }'
    )
    result = optimize(model, level, strict=True)
    inner = next(a.g for node in result.graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
    assert inner.node[0].input[0] in {name for node in result.graph.node for name in node.output}
