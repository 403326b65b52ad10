"""Variants in who reads or gives a value: each kind is drawn, and enough of what is drawn runs."""

from __future__ import annotations

import random

import onnx
import pytest

from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.stock import fragment
from graphopt.fuzzing.unstated import USUAL_AND_UNSTATED
from graphopt.fuzzing.uses import USES
from graphopt.fuzzing.variants import variant

CHAIN = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2,3] x) => (float[2,3] y)
<float[3] one = {1,2,3}, float[3] two = {4,5,6}>
{
  a = Mul (x, one)
  y = Add (a, two)
}"""
BARE = """<ir_version: 8, opset_import: ["" : 18]>
g (float x) => (float y) { y = Relu (x) }"""


@pytest.mark.parametrize("kind", USES)
def test_each_kind_is_drawn_and_runs(kind: str) -> None:
    forms = set()
    for seed in range(20):
        found = variant(onnx.parser.parse_model(CHAIN), seed, {kind: USES[kind]})
        if found is not None and fragment("chain", found[1], Draw(str(seed))) is not None:
            forms.add(found[1].SerializeToString(deterministic=True))
    assert len(forms) > 1


@pytest.mark.parametrize("kind", ["overridable", "twice", "fewer axes"])
def test_a_model_that_has_nothing_to_change_is_left(kind: str) -> None:
    assert not USES[kind](onnx.parser.parse_model(BARE), random.Random(0))


def test_our_own_rules_are_asked_with_all_of_them() -> None:
    assert set(USES) <= set(USUAL_AND_UNSTATED)
