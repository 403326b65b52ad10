"""Shapes through If, Loop and Scan, and what the engine keeps up to date."""

from __future__ import annotations

import time

import pytest
from onnx import parser

from graphopt.analysis import Expr, ShapeAnalysis, infer_types
from graphopt.ir import Model


def analyse(text: str, *, strict: bool = True) -> tuple[Model, ShapeAnalysis]:
    model = Model.load(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'))
    infer_types(model)
    return model, ShapeAnalysis(model, strict=strict)


def shape_of(text: str, name: str = "y") -> tuple | None:
    model, analysis = analyse(text)
    return analysis.shape(next(g.values[name] for g in model.graphs() if name in g.values))


def names(shape: tuple | None) -> list[int | str]:
    assert shape is not None
    return [
        d if isinstance(d, int) else "?" if d.symbol is not None and d.symbol.name is None else str(d) for d in shape
    ]


LOOP = "g (float[N,M] x, int64 k, bool c) => (y) {{ y = Loop(k, c, x) <body = b (int64 i, bool d, float s) => (e, t) {{ e = Identity(d) {0} }}> }}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("t = Relu(s)", ["N", "M"]),
        ("t = Concat<axis = 0>(s, x)", ["?", "M"]),
        ("t = Concat<axis = 1>(s, s)", ["N", "?"]),
        ("t = Transpose(s)", ["?", "?"]),
        ("t = Add(s, x)", ["N", "M"]),
        ("t = MatMul(s, x)", ["N", "M"]),
    ],
)
def test_a_loop_keeps_what_every_round_keeps(body: str, expected: list[str]) -> None:
    assert names(shape_of(LOOP.format(body))) == expected


def test_a_loop_that_changes_the_rank_is_unknown() -> None:
    assert shape_of(LOOP.format("z = Constant<value_ints = [0]>() t = Unsqueeze(s, z)")) is None


def test_stacked_results_of_a_loop_without_rounds_are_unknown() -> None:
    text = (
        "g (float[N,M] x, int64 k, bool c) => (y, z) {{ y, z = Loop({0}, {1}, x) <body = b (int64 i, bool d, float s) "
        "=> (e, t, u) {{ e = Identity(d) t = Relu(s) u = Neg(s) }}> }}"
    )
    assert names(shape_of(text.format("k", "c"), "z")) == ["?", "?", "?"]
    known = text.replace("{{ y, z", "{{ three = Constant<value_int = 3>() y, z").format("three", "")
    assert names(shape_of(known, "z")) == ["?", "N", "M"]


def test_scan() -> None:
    text = (
        "g (float[N] s, float[T,N] x) => (a, y) { a, y = Scan<num_scan_inputs = 1, body = b (float p, float q) => (r, o) "
        "{ r = Add(p, q) o = Relu(r) }>(s, x) }"
    )
    assert names(shape_of(text, "a")) == ["N"]
    assert names(shape_of(text))[0] == "T"


def test_branches_are_joined() -> None:
    text = (
        "g (float[N,3] x, float[N,4] z, bool c) => (y) {{ {0} y = If(c{1}) <then_branch = t () => (a) {{ a = Relu(x) }}, "
        "else_branch = e () => (b) {{ b = Neg(z) }}> }}"
    )
    assert names(shape_of(text.format("", ""))) == ["N", "?"]
    assert shape_of(text.format("c1 = Constant<value = bool {1}>()", "1"))[1] == 3


def test_the_condition_may_be_proved_from_sizes() -> None:
    text = (
        "g (float[N,3] x) => (y) { s = Shape(x) n = Gather(s, z) m = Less(n, z) y = If(m) <then_branch = t () => (a) "
        "{ a = Transpose(x) }, else_branch = e () => (b) { b = Relu(x) }> }"
    ).replace("=> (y) {", "=> (y) <int64 z = {0}> {")
    assert names(shape_of(text)) == ["N", 3]


def test_deep_nesting_of_loops_ends() -> None:
    body = "t0 = Relu(s0)"
    for depth in range(12):
        body = (
            f"t{depth + 1} = Loop(k, c, s{depth + 1}) <body = b{depth} (int64 i{depth}, bool d{depth}, float s{depth}) => "
            f"(e{depth}, t{depth}) {{ e{depth} = Identity(d{depth}) {body} }}>"
        )
    start = time.perf_counter()
    shape_of(f"g (float[N] s12, int64 k, bool c) => (t12) {{ {body} }}", "t12")
    assert time.perf_counter() - start < 60  # exponential work would not end


def test_contents_of_shapes() -> None:
    model, analysis = analyse(
        "g (float[N,S,768] x) => (y) <int64[1] h = {12}, int64[1] d = {64}> { n = Shape<end = 2>(x) "
        "t = Concat<axis = 0>(n, h, d) y = Reshape(x, t) }"
    )
    values = model.graph.values
    n, s = analysis.symbols.named("N"), analysis.symbols.named("S")
    assert list(analysis.data(values["t"])) == [n, s, 12, 64]
    assert analysis.shape(values["y"]) == (n, s, 12, 64)
    assert analysis.to_dims(analysis.shape(values["y"])) == ("N", "S", 12, 64)


def test_flattened_and_restored() -> None:
    text = "g (float[N,S,8] x) => (y) <int64[2] f = {-1, 8}> { s = Shape(x) a = Reshape(x, f) b = Relu(a) y = Reshape(b, s) }"
    assert names(shape_of(text)) == ["N", "S", 8]
    assert names(shape_of(text, "a")) == ["N*S", 8]


def test_zero_sizes_make_a_copied_dimension_unknown() -> None:
    model = Model.load(
        parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 18]> g (float[M,8] x, float[N,S] z) => (y) '
            "<int64[1] k = {8}> { s = Shape(z) t = Concat<axis = 0>(s, k) y = Reshape(x, t) }"
        )
    )
    infer_types(model)
    shape = ShapeAnalysis(model, zero_sizes=True).shape(model.graph.values["y"])
    assert shape is not None
    assert all(isinstance(d, Expr) and d.symbol is not None and d.symbol.kind == "new" for d in shape[:2])


def test_refine_writes_better_types() -> None:
    model, analysis = analyse(
        "g (float[N,S,8] x, float[1] one) => (y) { s = Shape(x) z = Constant<value_int = -1>() m = Equal(s, z) "
        "o = Constant<value_int = 1>() t = Where(m, o, s) y = Expand(one, t) }"
    )
    assert analysis.refine() >= 1
    assert analysis.refine() == 0
    assert model.graph.values["y"].shape == ("N", "S", 8)


def test_equality_is_never_learnt_from_broadcasting() -> None:
    model, analysis = analyse("g (float[N,M] x, float[P,M] z) => (y) { a = Add(x, z) b = Neg(x) y = Mul(a, b) }")
    values = model.graph.values
    assert not analysis.same_shape(values["a"], values["b"])
    assert not analysis.same_shape(values["x"], values["z"])
    assert analysis.same_shape(values["b"], values["x"])
    assert analysis.equal(analysis.shape(values["x"])[0], analysis.shape(values["z"])[0]) is None


def test_update_follows_a_new_node() -> None:
    from graphopt.ir import Node, Value

    model, analysis = analyse("g (float[N,3] x) => (y) { y = Relu(x) }")
    node = Node("Transpose", "", model.graph)
    node.inputs = [model.graph.values["y"]]
    node.outputs = [Value("fresh", model.graph, node)]
    analysis.update(node)
    assert names(analysis.shape(node.outputs[0])) == [3, "N"]
