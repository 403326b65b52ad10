"""What a pattern matches and what not: operators, uses, inputs, attributes, constants, scopes. Refusals come first."""

from __future__ import annotations

import math

import onnx
import pytest

from graphopt.errors import Decline, PassError
from graphopt.ir import Model
from graphopt.match import Attr, Const, Either, Opt, Product, Rest, Scalar, Var, compile_pattern
from tests.engine.matching import found, graph, producer, reason, relu_of_neg

F, F16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
HALF = Var(dtype=F16)


def twice_used(op, x):
    neg = op.Neg(x)
    return op.Mul(neg, op.Sigmoid(neg))


def conv(op, x):
    return op.Relu(op.Conv(x, Const("w"), Opt(Const("b")), _bind="conv", _other_attrs=True))


def mean(op, x):
    return op.Relu(op.ReduceMean(x, axes=Attr("axes"), keepdims=1))


def gelu(op, x):
    return Product(x, op.Add(op.Erf(Product(x, scale=math.sqrt(0.5))), 1.0), scale=0.5)


def gated(op, x):
    return op.Mul(x, op.Sigmoid(Either(x, Product(x, scale="alpha"))))


TWO = {"outputs": "float[N] y, float[N] z"}
W = "float[4,3,3,3] w = {%s}" % ", ".join(["1"] * 108)  # noqa: UP031 -- braces


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu (x)",
        "a = Abs (x) y = Relu (a)",
        "a = Relu (x) y = Neg (a)",
        "a = my.domain.Neg (x) y = Relu (a)",
        "a = Neg (x) y = my.domain.Relu (a)",
        "a = Neg (x) y = com.microsoft.Relu (a)",
    ],
)
def test_other_operators_are_silently_no_match(body):
    assert reason(relu_of_neg, graph(body)) == ""


def test_a_call_of_a_local_function_is_no_operator():
    text = """<ir_version: 9, opset_import: ["" : 18, "my.domain" : 1]>
        g (float[N] x) => (float[N] y) { a = Neg (x) y = my.domain.Relu (a) }
        <domain: "my.domain", opset_import: ["" : 18]> Relu (p) => (q) { q = Abs (p) }"""
    model = Model.load(onnx.parser.parse_model(text))
    assert reason(relu_of_neg, model) == ""
    assert reason(lambda op, x: op.domain("my.domain").Relu(x), model) == ""


@pytest.mark.parametrize(
    ("pattern", "body", "options", "expected"),
    [
        (relu_of_neg, "a = Neg (x) y = Relu (a) z = Abs (a)", TWO, "a has other readers"),
        (relu_of_neg, "a = Neg (x) y = Relu (a)", {"outputs": "float[N] y, float[N] a"}, "a has other readers"),
        (
            relu_of_neg,
            "a = Neg (x) y = Relu (a) z = If (c) <then_branch = t () => (float[N] p) { p = Abs (a) },"
            " else_branch = e () => (float[N] q) { q = Abs (x) }>",
            {"inputs": "float[N] x, bool c", **TWO}, "a has other readers",
        ),
        (lambda op, x, b: op.Mul(op.Neg(x), b), "a = Neg (x) y = Mul (a, a)", {}, "a has other readers"),
        (twice_used, "a = Neg (x) s = Sigmoid (a) y = Mul (a, s) z = Abs (a)", TWO, "a has other readers"),
        (twice_used, "a = Neg (x) b = Neg (w) s = Sigmoid (a) y = Mul (b, s)", {"inputs": "float[N] x, float[N] w"}, ""),
        (lambda op, x: op.Relu(op.Dropout(x)), "a, m = Dropout (x) y = Relu (a)", {"outputs": "float[N] y, bool[N] m"}, "m has other readers"),
        (lambda op, x: op.Relu(op.Split(x, axis=Attr(), num_outputs=2)), "p, q = Split <axis = 1, num_outputs = 2> (x) y = Relu (q)", {}, ""),
        (conv, "a = Conv (x, v) y = Relu (a)", {"inputs": "float[N,3,8,8] x, float[4,3,3,3] v"}, "v is not constant"),
        (conv, "a = Conv (x, w, v) y = Relu (a)", {"inputs": "float[N,3,8,8] x, float[4] v", "held": W}, "v is not constant"),
        (lambda op, x: op.Relu(op.Conv(x, Const("w"))), "a = Conv <group = 1, strides = [2, 2]> (x, w) y = Relu (a)", {"held": W}, "attribute strides of Conv is [2, 2]"),
        (lambda op, x: op.Relu(op.Conv(x, Const("w"))), "a = Conv (x, w, b) y = Relu (a)", {"held": W + ", float[4] b = {1, 1, 1, 1}"}, "Conv has 3 inputs, the pattern has 2"),
        (lambda op, x: op.Relu(op.Add(x, 1.0)), "a = Add (x, c) y = Relu (a)", {"held": "float c = {2}"}, "c is 2.0, expected 1.0"),
        (lambda op, x: op.Relu(op.Add(x, 1.0)), "a = Add (x, c) y = Relu (a)", {"held": "float[2] c = {1, 1}"}, "c is not a constant number"),
        (lambda op, x: op.Relu(op.Add(x, 1.0)), "a = Add (x, c) y = Relu (a)", {"inputs": "float[3] x", "held": "float[1,1] c = {1}"}, "broadcasting c may raise the rank of the result"),
        (lambda op, x: op.Relu(op.Sub(x, 1.0)), "a = Sub (c, x) y = Relu (a)", {"held": "float c = {1}"}, "x is not a constant number"),
        (lambda op: op.Relu(op.Neg(Var("v", dtype=F16))), "a = Neg (x) y = Relu (a)", {}, "the element type of x is not float16"),
        (lambda op, v=HALF: op.Relu(op.Neg(v)), "a = Neg (x) y = Relu (a)", {}, "the element type of x is not float16"),
        (lambda op: op.Relu(op.Neg(Var("v", rank=(2, 3)))), "a = Neg (x) y = Relu (a)", {}, "x has rank 4, expected 2 or 3"),
        (mean, "a = ReduceMean <keepdims = 0> (x, c) y = Relu (a)", {"held": "int64[1] c = {1}"}, "attribute keepdims of ReduceMean is 0, expected 1"),
        (mean, "a = ReduceMean (x, c) y = Relu (a)", {"inputs": "float[N] x, int64[1] c"}, "c is not constant"),
        (mean, "a = ReduceMean <noop_with_empty_axes = 1> (x) y = Relu (a)", {}, "attribute noop_with_empty_axes of ReduceMean is 1"),
        (lambda op: op.Relu(op.Concat(Rest("parts", least=3), axis=1)), "a = Concat <axis = 1> (x, x) y = Relu (a)", {}, ""),
        (gelu, "a = Mul (x, s) b = Erf (a) c = Add (b, o) d = Mul (x, c) y = Mul (d, h)", {"held": "float s = {0.7}, float o = {1}, float h = {0.5}"}, "x is multiplied by 0.7, expected 0.7071068"),
        (gelu, "a = Mul (x, s) b = Erf (a) c = Add (b, o) d = Mul (x, c) y = Mul (d, h)", {"held": "float s = {0.70710678}, float o = {2}, float h = {0.5}"}, "o is 2.0, expected 1.0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_why(pattern, body, options, expected):
    assert reason(pattern, graph(body, **options)) == expected


def test_finds_the_nodes_and_binds_the_names():
    model = graph("a = Neg (x) y = Relu (a)")
    match = found(relu_of_neg, model)
    assert [node.op for node in match.owners] == ["Relu", "Neg"]
    assert match.root is producer(model)
    assert match.x is model.graph.values["x"]
    with pytest.raises(PassError, match="binds nothing to 'z'; it binds x"):
        _ = match.z


def test_any_of_binds_the_one_that_is_there():
    def pattern(op, x):
        return op.AnyOf("Relu", "Sigmoid", "com.microsoft::QuickGelu")(op.Neg(x), _bind="act")

    assert compile_pattern(pattern).roots == ("Relu", "Sigmoid", "com.microsoft::QuickGelu")
    assert found(pattern, graph("a = Neg (x) y = Sigmoid (a)")).act.op == "Sigmoid"
    assert found(pattern, graph("a = Neg (x) y = com.microsoft.QuickGelu (a)"))
    assert reason(pattern, graph("a = Neg (x) y = Tanh (a)")) == ""


def test_every_use_inside_the_match_counts():
    assert found(twice_used, graph("a = Neg (x) s = Sigmoid (a) y = Mul (s, a)"))


def test_a_computation_written_twice_is_one():
    match = found(twice_used, graph("a = Neg (x) b = Neg (x) s = Sigmoid (a) y = Mul (b, s)"))
    assert [node.op for node in match.owners].count("Neg") == 2


def test_shared_operators_may_have_other_readers():
    model = graph("a = Neg (x) y = Relu (a) z = Abs (a)", **TWO)
    assert found(lambda op, x: op.Relu(op.Neg(x, _shared=True)), model)


def test_what_is_optional_is_bound_or_none():
    with_bias = graph("a = Conv (x, w, b) y = Relu (a)", held=W + ", float[4] b = {1, 1, 1, 1}")
    without = graph("a = Conv <strides = [2, 2]> (x, w) y = Relu (a)", held=W)
    assert found(conv, with_bias).b.name == "b"
    match = found(conv, without)
    assert match.b is None
    assert match.conv.op == "Conv"


def test_axes_are_read_as_an_attribute_or_an_operand():
    assert found(mean, graph("a = ReduceMean (x, c) y = Relu (a)", held="int64[2] c = {-1, 2}")).axes == (-1, 2)
    assert found(mean, graph("a = ReduceMean <axes = [3]> (x) y = Relu (a)", opset=17)).axes == (3,)
    assert found(mean, graph("a = ReduceMean (x) y = Relu (a)")).axes is None


def test_commutative_operands_fit_in_either_order_and_a_choice_is_taken_back():
    def pattern(op, x, z):
        return op.Sub(op.Add(x, z), op.Neg(z))

    two = {"inputs": "float[N] x, float[N] w"}
    for body in ("a = Add (x, w) b = Neg (w) y = Sub (a, b)", "a = Add (w, x) b = Neg (w) y = Sub (a, b)"):
        match = found(pattern, graph(body, **two))
        assert (match.x.name, match.z.name) == ("x", "w")
    assert reason(pattern, graph("a = Add (x, x) b = Neg (w) y = Sub (a, b)", **two)) == ""
    ordered = graph("a = Add (w, x) b = Neg (w) y = Sub (a, b)", **two)
    assert reason(lambda op, x, z: op.Sub(op.Add(x, z, _ordered=True), op.Neg(z)), ordered) == ""


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul (x, s) b = Erf (a) c = Add (b, o) d = Mul (x, c) y = Mul (d, h)",
        "a = Div (x, r) b = Erf (a) c = Add (o, b) d = Mul (x, h) y = Mul (d, c)",
        "a = Mul (s, x) b = Erf (a) c = Add (o, b) d = Mul (c, x) y = Div (d, two)",
        "a = Mul (s, x) b = Erf (a) c = Add (o, b) d = Mul (c, h) y = Mul (x, d)",
    ],
)
def test_a_product_fits_however_it_is_multiplied(body):
    held = "float s = {0.70710678}, float r = {1.41421356}, float o = {1}, float h = {0.5}, float two = {2}"
    match = found(gelu, graph(body, held=held))
    assert match.x.name == "x"
    assert len(match.owners) == 5


def test_alternatives_bind_their_own_names():
    assert found(gated, graph("a = Sigmoid (x) y = Mul (x, a)")).alpha is None
    scaled = graph("b = Mul (x, c) a = Sigmoid (b) y = Mul (a, x)", held="float c = {1.702}")
    assert found(gated, scaled).alpha == pytest.approx(1.702)


def test_the_rest_of_a_variadic_operator():
    def pattern(op, x):
        return op.Relu(op.Concat(x, Rest("parts"), axis=Attr("axis")))

    model = graph("a = Concat <axis = 1> (x, w, x) y = Relu (a)", inputs="float[N,3] x, float[N,3] w")
    match = found(pattern, model)
    assert [value.name for value in match.parts] == ["w", "x"]
    assert match.axis == 1


def test_captured_values_bind_but_their_producers_do_not_fit():
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[N] x, bool c) => (float[N] z) {
        a = Neg (x) z = If (c) <then_branch = t () => (float[N] y) { y = Relu (a) },
        else_branch = e () => (float[N] q) { q = Abs (x) }> }"""
    model = Model.load(onnx.parser.parse_model(text))
    node = next(iter(producer(model, "z").subgraphs["then_branch"]))
    assert compile_pattern(lambda op, x: op.Relu(x)).match(node).x.name == "a"
    with pytest.raises(Exception, match="a is computed in an outer graph"):
        compile_pattern(relu_of_neg).match(node)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (lambda op, x: x, "it has no operator that it ends in"),
        (lambda op, x, z: op.Relu(x), "its parameter z is never used"),
        (lambda op, x: op.Add(x, Const("root")), "'root' is not a usable name"),
        (lambda op, x: op.Add(x, "text"), "an operand of a pattern is a str"),
    ],
)
def test_mistakes_are_reported_when_a_pattern_is_defined(pattern, problem):
    with pytest.raises(PassError, match=problem):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (lambda op, x: op.Rleu(x), "no operator Rleu; did you mean Relu"),
        (lambda op, x: op.Relu(x, slope=1), "Relu has no attribute slope"),
    ],
)
def test_validation_knows_the_standard(pattern, problem):
    with pytest.raises(PassError, match=problem):
        compile_pattern(pattern).validate()


def test_a_silent_constant_is_no_near_miss():
    model = graph("a = Neg (x) y = Add (a, x) z = Abs (a)", **TWO)
    assert reason(lambda op, x: op.Add(op.Neg(x), Const("b")), model) == "a has other readers"
    assert reason(lambda op, x: op.Add(op.Neg(x), Const("b", silent=True)), model) == ""


def test_an_attribute_of_another_computation_is_no_near_miss():
    model = graph("a = Transpose <perm = [1, 0]> (x) y = Relu (a) z = Abs (a)", inputs="float[2,3] x", **TWO)
    other, both = Attr("perm", among={(0, 1)}), Attr("perm", among={(0, 1), (1, 0)})
    assert reason(lambda op, x: op.Relu(op.Transpose(x, perm=other)), model) == ""
    assert reason(lambda op, x: op.Relu(op.Transpose(x, perm=both)), model) == "a has other readers"


def test_a_silent_scalar_is_no_near_miss():
    model = graph("a = Neg (x) y = Mul (a, x) z = Abs (a)", **TWO)
    assert reason(lambda op, x: op.Mul(op.Neg(x), Scalar("s")), model) == "a has other readers"
    assert reason(lambda op, x: op.Mul(op.Neg(x), Scalar("s", silent=True)), model) == ""
    many = graph("a = Neg (x) y = Mul (a, c)", held="float[8] c = {1, 2, 3, 4, 5, 6, 7, 8}")
    assert reason(lambda op, x: op.Mul(op.Neg(x), Scalar("s")), many) == "c is not a constant number"
    assert reason(lambda op, x: op.Mul(op.Neg(x), Scalar("s", silent=True)), many) == ""


def test_what_a_rewrite_declines_is_tried_the_other_way_round():
    model = graph("a = Neg (x) b = Neg (w) y = Add (a, b)", inputs="float[N] x, float[N] w")
    compiled = compile_pattern(lambda op, z: op.Add(op.Neg(z), Var("rest"), _bind="add"))

    def accept(match):
        seen.append(match.z.name)
        if match.z.name != wanted:
            raise Decline("{} is negated", match.z.name)

    for wanted, order in (("x", ["x"]), ("w", ["x", "w"])):
        seen: list[str] = []
        match = compiled.match(producer(model), accept)
        assert (match.z.name, seen) == (wanted, order)
    seen, wanted = [], "neither"
    with pytest.raises(Decline, match="x is negated"):
        compiled.match(producer(model), accept)


def test_names_of_outputs_and_operands_are_bound_when_a_rewrite_sees_them():
    model = graph("a, b = Split <axis = 1, num_outputs = 2> (x) y = Concat <axis = 1> (a, b, x)")

    def pattern(op, x):
        one, two = op.Split.outputs(("one", "two"), x, _other_attrs=True)
        return op.Concat(one, two, Rest("others"), axis=Attr("axis"))

    def accept(match):
        assert [value.name for value in (match.one, match.two, *match.others)] == ["a", "b", "x"]
        assert match.axis == 1

    compile_pattern(pattern).match(producer(model), accept)


def test_a_rank_that_is_not_known_is_said():
    model = graph("a = my.domain.Any (x) y = Neg (a)")
    assert reason(lambda op: op.Neg(Var("x", rank=2)), model) == "the rank of a is not known"


def test_a_pattern_reads_as_onnx():
    assert str(compile_pattern(gelu)) == "0.5 * x * Add (Erf (0.7071068 * x), 1)"
    assert str(compile_pattern(twice_used)) == "v1 = Neg (x)\nMul (v1, Sigmoid (v1))"
    assert str(compile_pattern(conv)) == "Relu (Conv <...> (x, const w, const b?))"
    assert str(compile_pattern(gated)) == "Mul (x, Sigmoid ((x | alpha * x)))"
    assert str(compile_pattern(mean)) == "v1 = ReduceMean <axes = axes, keepdims = 1> (x)\nRelu (v1)"
    assert str(compile_pattern(lambda op, x: Either(op.Relu(x), op.Tanh(x)))) == "Relu (x)\nor Tanh (x)"


def test_a_factor_is_up_to_digits_and_a_power_exact():
    held = "float c = {2.000001}"
    wrong = "c is 2.0000009536743164, expected 2.0"
    product, power = graph("a = Mul (x, c) y = Neg (a)", held=held), graph("a = Pow (x, c) y = Neg (a)", held=held)
    assert found(lambda op, x: op.Neg(op.Mul(x, 2.0)), product)
    assert reason(lambda op: op.Neg(op.Mul(Var("v", rank=4), Scalar(value=2.0, exact=True))), product) == wrong
    assert reason(lambda op, x: op.Neg(op.Pow(x, 2.0)), power) == wrong
    assert found(lambda op, x: op.Neg(op.Pow(x, 2.0)), graph("a = Pow (x, c) y = Neg (a)", held="float c = {2}"))


def test_a_number_is_bound():
    match = found(
        lambda op, x: op.Relu(op.Add(x, Scalar("shift"))),
        graph("a = Add (c, x) y = Relu (a)", held="float[1] c = {0.25}"),
    )
    assert match.shift == 0.25


@pytest.mark.parametrize(
    "body",
    [
        "a = Split <axis = 1, num_outputs = 1> (x) y = Relu (a)",
        "a = Clip (x) y = Relu (a)",
        's = Constant <value = float {0}> () a = Clip (x, "", s) y = Relu (a)',
    ],
)
def test_dots_stand_for_whatever_else_is_read_and_stated(body):
    def pattern(op, x):
        return op.Relu(op.AnyOf("Clip", "Split")(x, ..., _bind="first"))

    match = found(pattern, graph(body))
    assert match.first.inputs[0] is match.x


def test_dots_keep_the_order_of_operands():
    model = graph("a = Neg (x) y = Add (x, a)")
    assert reason(lambda op, x: op.Add(op.Neg(x), ...), model) == ""
    assert str(compile_pattern(lambda op, x: op.Add(op.Neg(x), ...))) == "Add (Neg (x), ...)"
