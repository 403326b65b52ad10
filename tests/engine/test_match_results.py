"""What a match and a near miss tell a rule."""

from __future__ import annotations

import pytest

from graphopt.errors import PassError
from graphopt.match import Attr, Mismatch, Opt, Var
from tests.engine.matching import found, graph, relu_of_neg


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
