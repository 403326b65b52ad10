"""Variants that put two unusual things together: each kind is drawn, and enough of what is drawn runs."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import numpy_helper

from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.stock import fragment
from graphopt.fuzzing.unstated import USUAL_AND_UNSTATED, opposite_scales, unstated
from graphopt.fuzzing.variants import variant
from graphopt.fuzzing.working import FuzzSettings, Worker

POOL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1,2,6,6] x) => (float[1,2,A,B] y)
{ y = MaxPool <kernel_shape = [2,2]> (x) }"""
SCALES = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y)
<float[2] one = {1,2}, float[2] two = {3,4}>
{
  a = Mul (x, one)
  y = Mul (a, two)
}"""


def test_attributes_that_nobody_states_are_drawn() -> None:
    names, runs = set(), 0
    for seed in range(150):
        model = onnx.parser.parse_model(POOL)
        if unstated(model, random.Random(seed)):
            names.add(model.graph.node[0].attribute[-1].name)
            found = variant(onnx.parser.parse_model(POOL), seed, {"unstated": unstated})
            runs += found is not None and fragment("pool", found[1], Draw(str(seed))) is not None
    assert names == {"auto_pad", "ceil_mode", "dilations", "pads", "storage_order", "strides"}
    assert runs > 15


def test_a_node_without_further_attributes_is_left() -> None:
    model = onnx.parser.parse_model(SCALES)
    assert not unstated(model, random.Random(0))


def test_opposite_scales_make_up_for_each_other() -> None:
    model = onnx.parser.parse_model(SCALES)
    assert opposite_scales(model, random.Random(1))
    one, two = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    np.testing.assert_allclose(one.astype(float) * two, [3, 8], rtol=1e-6)
    assert max(one.max(), two.max()) > 1e4


def test_models_without_two_constants_have_no_scales() -> None:
    assert not opposite_scales(onnx.parser.parse_model(POOL), random.Random(1))


def test_our_own_rules_are_asked_with_both() -> None:
    assert Worker(FuzzSettings("unstated", subjects=())).stock.kinds is USUAL_AND_UNSTATED
    assert {"unstated", "opposite scales"} <= set(USUAL_AND_UNSTATED)
