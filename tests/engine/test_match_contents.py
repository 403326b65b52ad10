"""What a pattern asks of attributes and constants, and in which order inputs may stand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.match import Attr, Const, Var
from tests.engine.matching import find, found, graph, reason

F, F16, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64


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

    def test_a_compared_attribute_can_have_a_name(self):
        pattern = lambda op, x: op.Softmax(x, axis=Attr("axis", equals=1))  # noqa: E731
        assert found(pattern, graph("y = Softmax (x)", opset=12)).attr("axis", int) == 1

    def test_infinities_have_no_literal(self):
        pattern = lambda op, x: op.domain("my.domain").F(x, a=float("inf"), b=Attr("b", default=float("-inf")))  # noqa: E731
        assert found(pattern, graph("y = my.domain.F <a = inf> (x)")).attr("b", float) == float("-inf")
        assert reason(pattern, graph("y = my.domain.F <a = 1.0> (x)")).endswith(
            "a of my.domain::F is 1.0, expected inf"
        )


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
            (Const(value=2.0), "float[1,1,1,1,1] c = {2}", "constant 'c' has shape [1, 1, 1, 1, 1], which may"),
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
