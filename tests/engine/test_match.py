"""What a pattern matches and what not: operators, uses, inputs, scopes, roots. Refusals come first."""

from __future__ import annotations

import onnx
import pytest

from graphopt.ir import Model, Node
from graphopt.match import Attr, Const, Match, Opt, Rest, Var, compile_pattern
from tests.engine.matching import find, found, graph, producer, reason, relu_of_neg

F, F16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


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
