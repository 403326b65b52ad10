"""Mistakes in patterns are found when the pattern is defined, with the place and the pattern as text."""

from __future__ import annotations

import sys
import traceback

import pytest

from graphopt.errors import PassError
from graphopt.match import Attr, Const, Opt, Rest, Var, compile_pattern, trace
from graphopt.match.text import pattern_text
from tests.engine.matching import graph, producer


def refuse(pattern, *, match: str) -> str:
    with pytest.raises(PassError, match=match) as caught:
        compile_pattern(pattern, name="my_rule")
    return str(caught.value)


def sums(op, count: int, *, ordered: bool = False):
    """A chain of additions whose operands all look the same."""
    total = op.Neg(Var("x0"))
    for k in range(1, count + 1):
        total = op.Add(total, op.Neg(Var(f"x{k}")) if k == 1 else Var(f"x{k}"), _ordered=ordered)
    return total


class TestMistakes:
    def test_the_message_has_the_place_and_the_pattern(self):
        def pattern(op, x):
            negated = op.Neg(x)
            return op.Rellu(negated)

        line = pattern.__code__.co_firstlineno + 2
        assert refuse(pattern, match="Rellu") == (
            f"{__file__}:{line}: the ONNX standard has no operator Rellu; did you mean Relu?\n"
            "  in the pattern of my_rule:\n    v1 = Neg (x)\n    v2 = Rellu (v1)"
        )

    def test_an_unknown_attribute(self):
        refuse(lambda op, x: op.Softmax(x, axes=1), match="Softmax has no attribute axes; did you mean axis?")

    def test_an_attribute_of_any_version_is_known(self):
        assert compile_pattern(lambda op, x: op.Squeeze(x, axes=Attr("axes")))
        assert compile_pattern(lambda op, x: op.Upsample(x, Const("scales"), mode=Attr()))

    def test_an_attribute_of_a_custom_operator_is_not_judged(self):
        assert compile_pattern(lambda op, x: op.domain("my.domain").F(x, anything=1))

    def test_a_required_attribute(self):
        refuse(lambda op, x: op.Cast(x), match=r"Cast needs attribute to, so mention it, for example to=Attr\(\)")
        assert compile_pattern(lambda op, x: op.Cast(x, _other_attrs=True))

    def test_an_attribute_that_no_pattern_can_compare(self):
        refuse(lambda op, x: op.Softmax(x, axis=object()), match="not a object")
        refuse(lambda op, x: op.Softmax(x, axis=Attr("a", equals=1, default=2)), match="one of them is enough")

    def test_an_unknown_option(self):
        refuse(lambda op, x: op.Relu(x, _share=True), match="Relu has an unknown option '_share'; there are _outputs")

    def test_too_many_inputs(self):
        refuse(lambda op, x: op.Relu(x, x), match="Relu takes at most 1 inputs, the pattern has 2")

    def test_inputs_that_are_no_patterns(self):
        refuse(lambda op, x: op.Relu("x"), match="input 0 of Relu is a str, expected a pattern or a literal")
        refuse(
            lambda op, x: op.Relu(op.Split(x, _other_attrs=True, _outputs=["a", "b"])),
            match="is a tuple.*name the one output that is meant",
        )

    def test_rest_stands_last(self):
        refuse(lambda op, x: op.Sum(Rest("parts"), x), match="Rest must be the last input of Sum")

    def test_names(self):
        refuse(lambda op, x, z: op.Relu(x), match="parameter z is never used")
        refuse(lambda op, x: op.Pow(Var("x"), x), match="x is bound twice")
        refuse(lambda op, x: op.Relu(x, _bind="x"), match="x is bound twice")
        refuse(lambda op, x: op.Relu(x, _bind="a b"), match="'a b' is not a usable name")

    def test_operators_that_are_not_returned(self):
        def forgotten(op, x):
            op.Neg(x)
            return op.Relu(x)

        refuse(forgotten, match="Neg is not part of what the pattern returns")

    def test_operators_of_another_pattern(self):
        taken = []

        def first(op, x):
            taken.append(op.Neg(x))
            return taken[0]

        compile_pattern(first)
        refuse(lambda op: op.Relu(taken[0]), match="Neg belongs to another pattern")

    @pytest.mark.parametrize("returned", [None, Var("x"), (), Const("c"), [1]])
    def test_no_fixed_root(self, returned):
        refuse(lambda op: returned, match="no fixed root: it must return operators, not")

    def test_no_parameters(self):
        refuse(lambda: None, match="the first is the builder")

    def test_any_of_nothing(self):
        refuse(lambda op, x: op.AnyOf()(x), match="AnyOf needs at least one operator")

    def test_constant_nodes(self):
        refuse(lambda op, x: op.Add(x, op.Constant(value=Attr("v"))), match=r"matched with Const\(...\)")

    def test_a_root_is_not_shared(self):
        refuse(lambda op, x: op.Relu(x, _shared=True), match="_shared means nothing")

    def test_no_outputs(self):
        refuse(lambda op, x: op.Relu(op.Neg(x), _outputs=[]), match="no fixed root")

    def test_a_root_that_nothing_leads_to(self):
        refuse(lambda op, x, z: (op.Relu(x), op.Neg(z)), match="Neg shares no value with the roots before it")

        def only_if_present(op, x, z):
            return op.Clip(x, Opt(op.Neg(z))), op.Relu(z)

        refuse(only_if_present, match="Relu shares no value")

    def test_an_optional_value_that_is_needed_elsewhere(self):
        def pattern(op, x):
            low = Var("low")
            return op.Add(op.Clip(x, Opt(low)), low)

        refuse(pattern, match="an optional input of Clip is used elsewhere too")

    def test_too_many_orders(self):
        assert compile_pattern(lambda op: sums(op, 3))
        refuse(lambda op: sums(op, 4), match="4 commutative operators .* at most 3 .* mark the rest _ordered=True")
        assert compile_pattern(lambda op: sums(op, 5, ordered=True))

    def test_constants_and_operators_decide_the_order_by_themselves(self):
        def tanh_gelu(op, x):
            cubed = op.Mul(op.Pow(x, 3.0), 0.044715)
            tanh = op.Tanh(op.Mul(op.Add(x, cubed), 0.7978846))
            return op.Mul(op.Mul(x, op.Add(tanh, 1.0)), 0.5)

        assert compile_pattern(tanh_gelu)

    def test_an_exception_inside_the_pattern(self):
        message = refuse(lambda op, x: op.Relu(x + 1), match="raised TypeError")
        assert message.startswith(__file__)


class TestCompiled:
    def test_names_and_kinds(self):
        def pattern(op, x):
            conv = op.Conv(x, Const("w"), Opt(Const("b")), _bind="conv", group=Attr("group"))
            return op.Concat(conv, Rest("parts"), axis=1, _outputs=["joined"])

        compiled = compile_pattern(pattern)
        kinds = {"x": "value", "w": "const", "b": "const", "conv": "node", "group": "attr"}
        assert compiled.names == {**kinds, "parts": "values", "joined": "value"}
        assert compiled.roots == ("Concat",)

    def test_text(self):
        def pattern(op, x):
            conv = op.Conv(x, Const("w", shape=(None, 3)), Opt(Const("b")), _bind="conv", _other_attrs=True)
            scaled = op.Mul(conv, Const("half", 0.5), _shared=True, _ordered=True)
            kept, mask = op.Dropout(scaled, None, seed=Attr(), _outputs=["kept", "mask"])
            return op.AnyOf("Concat", "my.domain::Join")(kept, Rest("parts"), axis=Attr("axis"), to=[1, 2]), mask

        assert pattern_text(trace(pattern)) == (
            "conv = Conv <...> (x, const w, const b?)\n"
            "v2 = Mul (conv, const half = 0.5)  # shared, in this order\n"
            'kept, mask = Dropout <seed = *> (v2, "")\n'
            "v5 = Concat|my.domain::Join <axis = axis, to = [1, 2]> (kept, parts...)\n"
            "return v5, mask"
        )

    def test_tracebacks_show_the_generated_source(self):
        compiled = compile_pattern(lambda op, x: op.Relu(op.Neg(x)), name="shown")
        try:
            compiled.match(None)  # type: ignore[arg-type]
        except AttributeError:
            shown = "".join(traceback.format_exception(*sys.exc_info()))
        assert "<pattern shown of " in shown
        assert "if n0.op != 'Relu':" in shown

    def test_the_stand_in_compiles_once(self):
        compiled = compile_pattern(lambda op, x: op.Relu(x))
        held = compiled.match
        node = producer(graph("y = Relu (x)"))
        assert held(node)
        generated = compiled.match
        assert held(node)
        assert compiled.match is generated is not held
        assert compiled.source.startswith("# v1 = Relu (x)\n")

    def test_domains_can_be_chosen_on_the_way(self):
        tree = trace(lambda op, x: op.domain("ai.onnx").Relu(op.domain("a").domain("b").F(x)))
        assert [node.ops for node in tree.nodes()] == [("Relu",), ("b::F",)]
