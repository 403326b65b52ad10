"""What a pattern matches and what not; the refusals come first, since they keep models right."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.errors import PassError
from graphopt.ir import Model, Node
from graphopt.match import Attr, Const, Match, Mismatch, Opt, Rest, Var, compile_pattern

F, F16, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64


def graph(body: str, *, inputs="float[N,3,8,8] x", outputs="float[N,3,8,8] y", held="", opset=18) -> Model:
    """A model of a few lines of ONNX text; `held` declares constants and types of values between operators."""
    imports = f'"" : {opset}, "com.microsoft" : 1, "my.domain" : 1'
    held = f"<{held}>" if held else ""
    text = f"<ir_version: 9, opset_import: [{imports}]>\ng ({inputs}) => ({outputs}) {held} {{ {body} }}"
    return Model.load(onnx.parser.parse_model(text))


def producer(model: Model, name: str = "y") -> Node:
    node = model.graph.values[name].producer
    assert node is not None
    return node


def find(pattern, model: Model, name: str = "y"):
    """What the pattern says of the node that computes a value."""
    return compile_pattern(pattern).match(producer(model, name))


def reason(pattern, model: Model, name: str = "y") -> str:
    found = find(pattern, model, name)
    assert isinstance(found, Mismatch), f"expected a near miss, found {found}"
    return str(found)


def found(pattern, model: Model, name: str = "y") -> Match:
    match = find(pattern, model, name)
    assert isinstance(match, Match), f"expected a match, found {match!r}"
    return match


def relu_of_neg(op, x):
    return op.Relu(op.Neg(x))


class TestOperators:
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
    def test_other_operators_are_silently_no_match(self, body):
        assert find(relu_of_neg, graph(body)) is None

    def test_a_call_of_a_local_function_is_no_operator(self):
        text = """<ir_version: 9, opset_import: ["" : 18, "my.domain" : 1]>
            g (float[N] x) => (float[N] y) { a = Neg (x) y = my.domain.Relu (a) }
            <domain: "my.domain", opset_import: ["" : 18]> Relu (p) => (q) { q = Abs (p) }"""
        model = Model.load(onnx.parser.parse_model(text))
        assert find(relu_of_neg, model) is None
        assert find(lambda op, x: op.domain("my.domain").Relu(x), model) is None

    def test_finds_the_nodes_and_binds_the_names(self):
        model = graph("a = Neg (x) y = Relu (a)")
        match = found(relu_of_neg, model)
        assert [node.op for node in match.nodes] == ["Relu", "Neg"]
        assert match.root is producer(model)
        assert match.value("x") is model.graph.values["x"]
        assert match.outputs == (model.graph.values["y"],)

    def test_operators_of_another_domain(self):
        model = graph("y = com.microsoft.Gelu (x)")
        assert found(lambda op, x: op.domain("com.microsoft").Gelu(x), model)
        assert find(lambda op, x: op.Gelu(x), model) is None

    def test_any_of_binds_the_one_that_is_there(self):
        def pattern(op, x):
            return op.AnyOf("Relu", "Sigmoid", "com.microsoft::QuickGelu")(op.Neg(x), _bind="act")

        assert compile_pattern(pattern).roots == ("Relu", "Sigmoid", "com.microsoft::QuickGelu")
        assert found(pattern, graph("a = Neg (x) y = Sigmoid (a)")).node("act").op == "Sigmoid"
        assert found(pattern, graph("a = Neg (x) y = com.microsoft.QuickGelu (a)"))
        assert find(pattern, graph("a = Neg (x) y = Tanh (a)")) is None

    def test_another_output_of_the_same_operator_does_not_fit(self):
        def pattern(op, x):
            return op.Relu(op.Split(x, axis=Attr(), num_outputs=2))

        def second(op, x):
            return op.Relu(op.Split(x, axis=Attr(), num_outputs=2, _outputs=["p", "q"])[1])

        model = graph("p, q = Split <axis = 1, num_outputs = 2> (x) y = Relu (q)")
        assert find(pattern, model) is None
        assert found(second, model)
        assert find(second, graph("p, q = Split <axis = 1, num_outputs = 2> (x) y = Relu (p)")) is None


class TestUses:
    def test_a_second_reader_keeps_the_producer(self):
        model = graph("a = Neg (x) y = Relu (a) z = Abs (a)", outputs="float[N] y, float[N] z")
        assert reason(relu_of_neg, model) == "value 'a' has 2 uses"

    def test_one_reader_that_reads_twice_counts_twice(self):
        model = graph("a = Neg (x) y = Mul (a, a)")
        assert reason(lambda op, x, b: op.Mul(op.Neg(x), b), model) == "value 'a' has 2 uses"

    def test_a_graph_output_is_a_use(self):
        model = graph("a = Neg (x) y = Relu (a)", outputs="float[N] y, float[N] a")
        assert reason(relu_of_neg, model) == "value 'a' is a graph output"

    def test_a_reader_in_a_subgraph_is_a_use(self):
        model = graph(
            "a = Neg (x) y = Relu (a)"
            " z = If (c) <then_branch = t () => (float[N] p) { p = Abs (a) },"
            " else_branch = e () => (float[N] q) { q = Abs (x) }>",
            inputs="float[N] x, bool c", outputs="float[N] y, float[N] z",
        )  # fmt: skip
        assert reason(relu_of_neg, model) == "value 'a' is read by a subgraph"

    def test_shared_allows_other_readers(self):
        def pattern(op, x):
            return op.Relu(op.Neg(x, _shared=True))

        model = graph("a = Neg (x) y = Relu (a) z = Abs (a)", outputs="float[N] y, float[N] z")
        assert found(pattern, model)

    def test_every_use_inside_the_match_counts(self):
        def pattern(op, x):
            neg = op.Neg(x)
            return op.Mul(neg, op.Sigmoid(neg))

        assert found(pattern, graph("a = Neg (x) s = Sigmoid (a) y = Mul (s, a)"))
        more = graph("a = Neg (x) s = Sigmoid (a) y = Mul (a, s) z = Abs (a)", outputs="float[N] y, float[N] z")
        assert reason(pattern, more) == "value 'a' has 3 uses"

    def test_an_output_that_is_not_listed_must_be_unused(self):
        def pattern(op, x):
            return op.Relu(op.Dropout(x))

        assert found(pattern, graph("a, m = Dropout (x) y = Relu (a)"))
        used = graph("a, m = Dropout (x) y = Relu (a)", outputs="float[N] y, bool[N] m")
        assert reason(pattern, used) == "output 1 of Dropout ('m') is used"

    def test_listed_outputs_of_the_root_may_be_used_or_absent(self):
        def pattern(op, x):
            return op.Dropout(op.Neg(x), _outputs=["kept", "mask"])

        used = found(pattern, graph("a = Neg (x) y, m = Dropout (a)", outputs="float[N] y, bool[N] m"))
        assert used.has("mask")
        assert [v.name for v in used.outputs] == ["y", "m"]
        absent = found(pattern, graph("a = Neg (x) y = Dropout (a)"))
        assert not absent.has("mask")
        assert absent.outputs[1] is None

    def test_a_listed_output_inside_that_the_pattern_drops_must_be_unused(self):
        def pattern(op, x):
            return op.Relu(op.Dropout(x, _outputs=["kept", "mask"])[0])

        used = graph("a, m = Dropout (x) y = Relu (a)", outputs="float[N] y, bool[N] m")
        assert reason(pattern, used) == "output 1 of Dropout ('m') is used"

    def test_different_operators_of_a_pattern_are_different_nodes(self):
        def pattern(op, x, z):
            return op.Sub(op.Neg(x, _shared=True), op.Neg(z, _shared=True))

        assert find(pattern, graph("a = Neg (x) y = Sub (a, a)")) is None
        assert found(pattern, graph("a = Neg (x) b = Neg (x) y = Sub (a, b)"))


class TestInputs:
    def conv(self, *rest):
        return lambda op, x: op.Conv(x, Const("w"), *rest, _other_attrs=True)

    WITHOUT = graph("y = Conv (x, w)", held="float[3,3,1,1] w = {1,0,0,0,1,0,0,0,1}")
    WITH = graph("y = Conv (x, w, b)", held="float[3,3,1,1] w = {1,0,0,0,1,0,0,0,1}, float[3] b = {1,2,3}")

    def test_more_inputs_than_the_pattern(self):
        assert reason(self.conv(), self.WITH) == "Conv has 3 inputs, the pattern 2"

    def test_fewer_inputs_than_the_pattern(self):
        assert reason(self.conv(Const("b")), self.WITHOUT) == "Conv has 2 inputs, the pattern 3"

    def test_none_means_absent(self):
        assert found(self.conv(None), self.WITHOUT)
        assert reason(self.conv(None), self.WITH) == "input 2 of Conv is given, the pattern leaves it out"

    def test_trailing_absent_inputs_are_absent(self):
        model = graph('y = Conv (x, w, "")', held="float[3,3,1,1] w = {1,0,0,0,1,0,0,0,1}")
        for rest in ((), (None,), (Opt(Const("b")),)):
            assert found(self.conv(*rest), model)

    def test_optional_is_absent_or_fits(self):
        optional = self.conv(Opt(Const("b")))
        assert not found(optional, self.WITHOUT).has("b")
        assert found(optional, self.WITH).const("b").tolist() == [1, 2, 3]
        computed = graph("b = Neg (c) y = Conv (x, w, b)", inputs="float[N,3,8,8] x, float[3,3,1,1] w, float[3] c")
        wrong = lambda op, x, w: op.Conv(x, w, Opt(Const("b")), _other_attrs=True)  # noqa: E731
        assert reason(wrong, computed) == "value 'b' is not a constant (it is computed by Neg)"

    def test_an_optional_operator_is_absent_or_fits(self):
        def pattern(op, x, low):
            return op.Clip(x, low, Opt(op.Neg(Var("high"))))

        inputs = "float[N] x, float l, float h"
        assert found(pattern, graph("n = Neg (h) y = Clip (x, l, n)", inputs=inputs)).value("high").name == "h"
        assert not found(pattern, graph("y = Clip (x, l)", inputs=inputs)).has("high")
        assert reason(pattern, graph("n = Abs (h) y = Clip (x, l, n)", inputs=inputs)).startswith("input 2 of Clip")

    def test_an_absent_input_in_the_middle(self):
        def pattern(op, x):
            return op.Clip(x, None, Const("high"))

        held = "float high = {6.0}"
        assert found(pattern, graph('y = Clip (x, "", high)', held=held)).const("high") == 6
        assert reason(pattern, graph("y = Clip (x, high, high)", held=held)).startswith("input 1 of Clip is given")
        assert find(lambda op, x, low: op.Clip(x, low, Const("h")), graph('y = Clip (x, "", high)', held=held)) is None

    def test_the_same_variable_is_the_same_value(self):
        def pattern(op, x):
            return op.Sub(op.Neg(x), x)

        two = "float[N] x, float[N] z"
        assert find(pattern, graph("a = Neg (x) y = Sub (a, z)", inputs=two)) is None
        assert found(pattern, graph("a = Neg (z) y = Sub (a, z)", inputs=two)).value("x").name == "z"

    def test_rest_takes_what_is_left(self):
        def pattern(op, x):
            return op.Concat(op.Neg(x), Rest("parts", min=2), axis=Attr("axis"))

        three = graph("a = Neg (x) y = Concat <axis = 0> (a, x, x)")
        match = found(pattern, three)
        assert [v.name for v in match.values("parts")] == ["x", "x"]
        assert match.attr("axis", int) == 0
        two = graph("a = Neg (x) y = Concat <axis = 0> (a, x)")
        assert reason(pattern, two) == "Concat has 2 inputs, the pattern 3"

    def test_a_variable_with_a_type_and_a_rank(self):
        def pattern(op):
            return op.Relu(Var("x", dtype={F, F16}, rank=(3, 4)))

        assert found(pattern, graph("y = Relu (x)"))
        assert reason(pattern, graph("y = Relu (x)", inputs="double[N,3,8,8] x")) == (
            "value 'x' is double, expected float or float16"
        )
        assert reason(pattern, graph("y = Relu (x)", inputs="float[N] x")) == "value 'x' has rank 1, expected 3 or 4"
        unknown = graph("a = my.domain.F (x) y = Relu (a)")
        assert reason(pattern, unknown) == "value 'a' is of unknown type, expected float or float16"


class TestAttributes:
    def test_an_attribute_off_its_default(self):
        pattern = lambda op, x, w: op.Conv(x, w)  # noqa: E731
        model = graph("y = Conv <group = 3> (x, w)", inputs="float[N,3,8,8] x, float[3,1,1,1] w")
        assert reason(pattern, model) == "attribute group of Conv is 3, expected the default 1"
        assert found(pattern, graph("y = Conv <group = 1> (x, w)", inputs="float[N,3,8,8] x, float[3,3,1,1] w"))

    def test_an_attribute_without_a_default(self):
        pattern = lambda op, x, w: op.Conv(x, w)  # noqa: E731
        model = graph("y = Conv <strides = [1, 1]> (x, w)", inputs="float[N,3,8,8] x, float[3,3,1,1] w")
        assert reason(pattern, model) == "attribute strides of Conv is given, the pattern does not mention it"

    def test_an_attribute_of_an_operator_nobody_knows(self):
        pattern = lambda op, x: op.domain("my.domain").F(x)  # noqa: E731
        model = graph("y = my.domain.F <mode = 1> (x)")
        assert reason(pattern, model) == "attribute mode of my.domain::F is given, the pattern does not mention it"
        assert found(lambda op, x: op.domain("my.domain").F(x, mode=Attr("mode")), model).attr("mode", int) == 1

    @pytest.mark.parametrize(("opset", "default"), [(11, 1), (12, 1), (13, -1), (18, -1)])
    def test_the_default_is_that_of_the_opset(self, opset, default):
        plain = lambda op, x: op.Softmax(x)  # noqa: E731
        first = lambda op, x: op.Softmax(x, axis=1)  # noqa: E731
        bound = lambda op, x: op.Softmax(x, axis=Attr("axis"))  # noqa: E731
        unset, one = graph("y = Softmax (x)", opset=opset), graph("y = Softmax <axis = 1> (x)", opset=opset)
        assert found(bound, unset).attr("axis", int) == default
        assert bool(find(plain, one)) == bool(find(first, unset)) == (default == 1)
        assert found(first, one)
        assert found(plain, unset)

    def test_an_attribute_that_the_opset_does_not_have_yet(self):
        pattern = lambda op, x: op.BatchNormalization(  # noqa: E731
            x, Const("g"), Const("b"), Const("m"), Const("v"), training_mode=0, epsilon=Attr("eps"), momentum=Attr()
        )
        held = "float[3] c = {1, 1, 1}"
        body = "y = BatchNormalization <epsilon = 0.25, momentum = 0.7> (x, c, c, c, c)"
        assert found(pattern, graph(body, held=held, opset=9)).attr("eps", float) == 0.25
        assert found(pattern, graph(body, held=held, opset=15))
        training = body.replace("<", "<training_mode = 1, ")
        assert reason(pattern, graph(training, held=held, opset=15)) == (
            "attribute training_mode of BatchNormalization is 1, expected 0"
        )

    def test_an_attribute_without_a_value(self):
        bound = lambda op, x: op.Transpose(x, perm=Attr("perm"))  # noqa: E731
        unset = graph("y = Transpose (x)")
        assert reason(bound, unset) == "attribute perm of Transpose is not set"
        assert reason(lambda op, x: op.Transpose(x, perm=[0, 1]), unset).endswith("is not set, expected (0, 1)")
        assert found(lambda op, x: op.Transpose(x, perm=Attr("perm", default=())), unset).attr("perm", tuple) == ()
        assert found(lambda op, x: op.Transpose(x, perm=Attr()), unset)
        assert found(lambda op, x: op.Transpose(x, perm=Attr(equals=None)), unset)
        turned = graph("y = Transpose <perm = [0, 2, 3, 1]> (x)")
        assert found(bound, turned).attr("perm", tuple) == (0, 2, 3, 1)
        assert reason(lambda op, x: op.Transpose(x, perm=[0, 1]), turned).endswith("is [0, 2, 3, 1], expected (0, 1)")
        assert not find(lambda op, x: op.Transpose(x, perm=Attr(equals=None)), turned)

    def test_floats_compare_as_they_are_stored(self):
        model = graph("y = LeakyRelu <alpha = 0.1> (x)")
        assert found(lambda op, x: op.LeakyRelu(x, alpha=0.1), model)
        assert not find(lambda op, x: op.LeakyRelu(x, alpha=0.1000001), model)

    def test_the_same_attribute_object_is_the_same_value(self):
        def pattern(op, x):
            axis = Attr("axis")
            return op.Softmax(op.Softmax(x, axis=axis), axis=axis)

        assert found(pattern, graph("a = Softmax <axis = 2> (x) y = Softmax <axis = 2> (a)")).attr("axis") == 2
        differ = graph("a = Softmax <axis = 2> (x) y = Softmax <axis = 3> (a)")
        assert reason(pattern, differ) == "attribute axis of Softmax is 2, expected 3 as before"


class TestConstants:
    def test_an_overridable_initializer_is_no_constant(self):
        pattern = lambda op, x: op.Pow(x, Const("p"))  # noqa: E731
        body = "y = Pow (x, p)"
        overridable = graph(body, inputs="float[N] x, float p", held="float p = {2.0}")
        assert reason(pattern, overridable) == "value 'p' is not a constant (it is an overridable initializer)"
        plain = graph(body, inputs="float[N] x, float p")
        assert reason(pattern, plain) == "value 'p' is not a constant (it is a graph input)"
        assert found(pattern, graph(body, held="float p = {2.0}")).const("p") == 2
        assert found(pattern, graph("p = Constant <value_float = 2.0> () y = Pow (x, p)")).const("p") == 2

    @pytest.mark.parametrize(
        ("literal", "held", "fits"),
        [
            (2.0, "float c = {2.0}", True),
            (2.0, "float c = {2.000001}", True),
            (2.0, "float c = {2.00001}", False),
            (0.0, "float c = {-0.0}", True),
            (0.0, "float c = {1e-30}", False),
            (0.1, "float16 c = {11878}", True),  # the text form of float16 is its bits: this is 0.1
            (0.1, "float16 c = {11879}", False),
            (1, "float c = {1.0}", True),
            (1, "int64 c = {1}", True),
            (0.5, "int64 c = {0}", False),
            (9007199254740993, "int64 c = {9007199254740992}", False),
            (True, "bool c = {1}", True),
            (float("inf"), "float c = {inf}", True),
            (3.4e38, "float16 c = {31744}", False),
            (float("nan"), "float c = {nan}", False),
            (2.0, "string c = {\"2\"}", False),
            (2.0, "float[1] c = {2.0}", True),
            (2.0, "float[1,1,1,1] c = {2.0}", True),
            (2.0, "float[1,1,1,1,1] c = {2.0}", False),
            (2.0, "float[2] c = {2.0, 2.0}", False),
            (2.0, "float[0] c = {}", False),
            ([1, 2], "int64[2] c = {1, 2}", True),
            ([1, 2], "int64[2] c = {2, 1}", False),
            ([1, 2], "int64[1,2] c = {1, 2}", False),
            (np.float32(2.0), "double c = {2.0}", True),
        ],
    )  # fmt: skip
    def test_literals(self, literal, held, fits):
        assert bool(find(lambda op, x: op.Pow(x, literal), graph("y = Pow (x, c)", held=held))) is fits

    @pytest.mark.parametrize(
        ("const", "held", "why"),
        [
            (Const(value=2.0), "float c = {3.0}", "constant 'c' is 3.0, expected 2.0"),
            (Const(value=2.0), "float[2] c = {2, 2}", "constant 'c' has shape [2], expected a scalar"),
            (Const(value=2.0), "float[1,1,1,1,1] c = {2}", "constant 'c' has shape [1, 1, 1, 1, 1], which may add axes"),
            (Const(shape=(None, 2)), "float[1,3] c = {1, 2, 3}", "constant 'c' has shape [1, 3], expected [None, 2]"),
            (Const(dtype=(I64, F16)), "float c = {1}", "constant 'c' is float, expected int64 or float16"),
            (Const(max_bytes=8), "float[3] c = {1, 2, 3}", "constant 'c' has 12 bytes, at most 8 are allowed"),
            (Const(value=[1, 2]), "float[2] c = {1, 3}", "constant 'c' does not hold [1, 2]"),
            (Const(value=1), "string c = {\"1\"}", "constant 'c' holds string, not numbers"),
        ],
    )  # fmt: skip
    def test_reasons(self, const, held, why):
        assert reason(lambda op, x: op.Pow(x, const), graph("y = Pow (x, c)", held=held)).startswith(why)

    @pytest.mark.parametrize(
        ("const", "held"),
        [
            (Const(value=2.0, rel=0.1), "float c = {2.1}"),
            (Const(value=0.0, abs=1e-3), "float c = {0.0005}"),
            (Const(value=2.0, shape=None), "float[2,2] c = {2, 2, 2, 2}"),
            (Const("c", shape=(None, 2)), "float[3,2] c = {1, 2, 3, 4, 5, 6}"),
            (Const("c", dtype=F, max_bytes=12), "float[3] c = {1, 2, 3}"),
            (Const(shape="scalar"), "float[1,1] c = {7}"),
        ],
    )
    def test_requirements_that_are_met(self, const, held):
        assert found(lambda op, x: op.Pow(x, const), graph("y = Pow (x, c)", held=held))

    def test_a_scalar_of_one_element_where_the_rank_is_not_known(self):
        model = graph("a = my.domain.F (x) y = Pow (a, c)", held="float[1] c = {2.0}")
        assert reason(lambda op, x: op.Pow(x, 2.0), model) == (
            "constant 'c' has shape [1], which may add axes to the result"
        )


class TestCommutation:
    def test_either_side_may_be_the_constant(self):
        pattern = lambda op, x: op.Add(x, 1.0)  # noqa: E731
        for body in ("y = Add (x, one)", "y = Add (one, x)"):
            match = found(pattern, graph(body, held="float one = {1.0}"))
            assert match.value("x").name == "x"

    def test_both_sides_constant(self):
        pattern = lambda op, x: op.Add(x, 1.0)  # noqa: E731
        held = "float one = {1.0}, float[4] many = {1, 2, 3, 4}"
        for body in ("y = Add (many, one)", "y = Add (one, many)"):
            assert found(pattern, graph(body, held=held)).value("x").name == "many"
        assert found(pattern, graph("y = Add (one, one)", held=held))
        assert reason(pattern, graph("y = Add (many, many)", held=held)).endswith("expected a scalar")

    def test_no_side_constant(self):
        pattern = lambda op, x: op.Add(x, 1.0)  # noqa: E731
        assert reason(pattern, graph("y = Add (x, x)")) == "value 'x' is not a constant (it is a graph input)"

    @pytest.mark.parametrize("body", ["s = Sigmoid (x) y = Mul (x, s)", "s = Sigmoid (x) y = Mul (s, x)"])
    def test_an_operator_and_a_variable(self, body):
        def pattern(op, x):
            return op.Mul(x, op.Sigmoid(x))

        assert found(pattern, graph(body))

    @pytest.mark.parametrize("body", ["y = Mul (s, t)", "y = Mul (t, s)"])
    def test_both_orders_fit_at_first_sight(self, body):
        def pattern(op, x):
            sigmoid = op.Sigmoid(x)
            return op.Mul(sigmoid, op.Sigmoid(sigmoid))

        assert found(pattern, graph(f"s = Sigmoid (x) t = Sigmoid (s) {body}")).value("x").name == "x"

    def test_inner_and_outer_orders_are_independent(self):
        def pattern(op, x, z):
            return op.Add(op.Mul(x, z), op.Mul(op.Neg(x), z))

        count = 0
        for outer in ("y = Add (p, q)", "y = Add (q, p)"):
            for first in ("p = Mul (u, v)", "p = Mul (v, u)"):
                for second in ("q = Mul (n, v)", "q = Mul (v, n)"):
                    model = graph(f"n = Neg (u) {first} {second} {outer}", inputs="float[N] u, float[N] v")
                    match = found(pattern, model)
                    assert (match.value("x").name, match.value("z").name) == ("u", "v")
                    count += 1
        assert count == 8

    def test_ordered_takes_it_as_written(self):
        pattern = lambda op, x: op.Add(op.Neg(x), Var("z"), _ordered=True)  # noqa: E731
        assert found(pattern, graph("a = Neg (x) y = Add (a, x)"))
        assert find(pattern, graph("a = Neg (x) y = Add (x, a)")) is None

    def test_operators_that_do_not_commute(self):
        pattern = lambda op, x, z: op.Sub(op.Neg(x), z)  # noqa: E731
        assert find(pattern, graph("a = Neg (x) y = Sub (x, a)")) is None

    def test_any_of_commutes_only_where_the_operator_does(self):
        pattern = lambda op, x, z: op.AnyOf("Add", "Sub")(op.Neg(x), z)  # noqa: E731
        assert found(pattern, graph("a = Neg (x) y = Add (x, a)"))
        assert found(pattern, graph("a = Neg (x) y = Sub (a, x)"))
        assert find(pattern, graph("a = Neg (x) y = Sub (x, a)")) is None

    @pytest.mark.parametrize("body", ["y = Max (x, c)", "y = Max (c, x)"])
    def test_variadic_operators_with_two_inputs(self, body):
        assert found(lambda op, x: op.Max(x, 0.0), graph(body, held="float c = {0.0}"))
        three = graph("y = Max (x, c, x)", held="float c = {0.0}")
        assert reason(lambda op, x: op.Max(x, 0.0), three) == "Max has 3 inputs, the pattern 2"


class TestScopes:
    BODY = (
        "a = Neg (x) y = If (c) <then_branch = t () => (float[N] p) { p = Relu (a) },"
        " else_branch = e () => (float[N] q) { r = Neg (x) q = Relu (r) }>"
    )

    def inner(self, branch: str, name: str) -> Node:
        model = graph(self.BODY, inputs="float[N] x, bool c", held="float[1] w = {1.0}")
        subgraphs = producer(model).subgraphs
        return next(n for n in subgraphs[branch] if any(v is not None and v.name == name for v in n.outputs))

    def test_a_producer_in_an_outer_graph_does_not_match(self):
        declined = compile_pattern(relu_of_neg).match(self.inner("then_branch", "p"))
        assert str(declined) == "value 'a' is computed in an outer graph"

    def test_a_captured_value_can_be_a_variable(self):
        match = compile_pattern(relu_of_neg).match(self.inner("else_branch", "q"))
        assert isinstance(match, Match)
        assert match.value("x").name == "x"
        assert compile_pattern(lambda op, x: op.Relu(x)).match(self.inner("then_branch", "p"))

    def test_a_captured_constant_can_be_a_constant(self):
        model = graph(
            "y = If (c) <then_branch = t () => (float[N] p) { p = Add (x, w) },"
            " else_branch = e () => (float[N] q) { q = Neg (x) }>",
            inputs="float[N] x, bool c", held="float w = {1.0}",
        )  # fmt: skip
        node = next(iter(producer(model).subgraphs["then_branch"]))
        assert compile_pattern(lambda op, x: op.Add(x, 1.0)).match(node)


class TestSeveralRoots:
    def qkv(self, op, x):
        return op.MatMul(x, Const("q")), op.MatMul(x, Const("k")), op.MatMul(x, Const("v"))

    HELD = "float[3,3] q = {1,0,0,0,1,0,0,0,1}, float[3,3] k = {1,0,0,0,1,0,0,0,1}, float[3,3] v = {1,0,0,0,1,0,0,0,1}"

    def test_the_others_are_found_through_readers(self):
        model = graph(
            "a = MatMul (x, q) n = Neg (x) b = MatMul (x, k) c = MatMul (x, v)",
            inputs="float[N,3] x", outputs="float[N,3] a, float[N,3] b, float[N,3] c, float[N,3] n", held=self.HELD,
        )  # fmt: skip
        match = found(self.qkv, model, "a")
        assert [node.op for node in match.nodes] == ["MatMul"] * 3
        assert len({*match.nodes}) == 3
        assert {v.name for v in match.outputs} == {"a", "b", "c"}
        assert match.outputs[0].name == "a"

    def test_one_missing(self):
        model = graph("a = MatMul (x, q) b = MatMul (x, k)", outputs="float[N] a, float[N] b", held=self.HELD)
        assert find(self.qkv, model, "a") is None

    def test_one_that_reads_something_else(self):
        model = graph(
            "z = Neg (x) a = MatMul (x, q) b = MatMul (x, k) c = MatMul (z, v)",
            outputs="float[N] a, float[N] b, float[N] c", held=self.HELD,
        )  # fmt: skip
        assert find(self.qkv, model, "a") is None

    def test_a_deeper_root(self):
        def pattern(op, x):
            return op.Relu(x), op.Sigmoid(op.Mul(op.Neg(x), op.Abs(x)))

        body = "y = Relu (x) n = Neg (x) a = Abs (x) m = Mul (a, n) s = Sigmoid (m)"
        match = found(pattern, graph(body, outputs="float[N] y, float[N] s"))
        assert [v.name for v in match.outputs] == ["y", "s"]
        shared = graph(body, outputs="float[N] y, float[N] s, float[N] m")
        assert reason(pattern, shared) == "value 'm' is a graph output"

    def test_a_root_that_feeds_another_may_be_used_elsewhere(self):
        def pattern(op, x):
            neg = op.Neg(x)
            return op.Relu(neg), neg

        model = graph("a = Neg (x) y = Relu (a) z = Abs (a)", outputs="float[N] y, float[N] z, float[N] a")
        assert [v.name for v in found(pattern, model).outputs] == ["y", "a"]

    def test_a_root_in_another_graph_is_not_found(self):
        model = graph(
            "y = Relu (x) z = If (c) <then_branch = t () => (float[N] p) { p = Neg (x) },"
            " else_branch = e () => (float[N] q) { q = Abs (x) }>",
            inputs="float[N] x, bool c", outputs="float[N] y, float[N] z",
        )  # fmt: skip
        assert find(lambda op, x: (op.Relu(x), op.Neg(x)), model) is None


class TestResults:
    def test_unknown_and_absent_names(self):
        model = graph("y = Clip (x)")
        match = found(lambda op, x: op.Clip(x, Opt(Var("low")), _bind="clip"), model)
        with pytest.raises(PassError, match="nothing of that kind to 'lo'; bound are: value x, value low, node clip"):
            match.value("lo")
        with pytest.raises(PassError, match=r"low is optional and absent in this match: ask has\('low'\) first"):
            match.value("low")
        for ask in (match.node, match.attr, match.has, match.values):
            with pytest.raises(PassError, match="'other'"):
                ask("other")
        with pytest.raises(PassError, match=r"x is 'x', which is not a constant: match it with Const\('x'\)"):
            match.const("x")

    def test_the_type_of_an_attribute_is_checked(self):
        match = found(lambda op, x: op.Softmax(x, axis=Attr("axis")), graph("y = Softmax (x)"))
        with pytest.raises(PassError, match="attribute axis is -1, expected tuple"):
            match.attr("axis", tuple)

    def test_matching_changes_nothing(self):
        model = graph("a = Neg (x) y = Relu (a)")
        before = model.flush().SerializeToString()
        found(relu_of_neg, model)
        assert not model.changed
        assert model.flush().SerializeToString() == before


class TestMismatch:
    def test_it_is_falsy_and_formats_late(self):
        class Late:
            def __format__(self, spec):
                asked.append(spec)
                return "late"

        asked: list[str] = []
        mismatch = Mismatch("{} {!r}", Late(), "x")
        assert not mismatch
        assert not asked
        assert str(mismatch) == "late 'x'"
        assert repr(mismatch) == "Mismatch(\"late 'x'\")"

    def test_equality_is_by_text(self):
        assert Mismatch("{} uses", 2) == Mismatch("2 uses")
        assert Mismatch("{} uses", 2) != Mismatch("{} uses", 3)
        assert Mismatch("2 uses") != "2 uses"
        assert len({Mismatch("{} uses", 2), Mismatch("2 uses")}) == 1

    def test_braces_without_arguments_are_text(self):
        assert str(Mismatch("shape {1, 2}")) == "shape {1, 2}"
