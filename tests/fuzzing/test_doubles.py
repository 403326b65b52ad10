"""The judge in doubles: which of two results in floats of 32 bits is the exact one."""

from __future__ import annotations

import numpy as np
import onnx

from graphopt.fuzzing.doubles import in_doubles, narrowed, outputs_in_doubles

GROUPS = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,2,1,1] x) => (float[1,2,1,1] y) <float[2] s = {1,1}, float[2] b = {0,0}>
{ y = GroupNormalization <num_groups = 1> (x, s, b) }
"""

PARTS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c, int64[1] n) => (float[m] y, double[2] w, int64[1] k)
{
  z = ConstantOfShape (n)
  one = Constant <value_float = 1.0> ()
  some = Constant <value_floats = [0.1, 0.2]> ()
  w = Cast <to = 11> (x)
  k = Identity (n)
  t = If (c) <
    then_branch = yes () => (float[2] u) { a = Constant <value = float[2] {0.5, 0.25}> () u = Mul (x, a) },
    else_branch = no () => (float[2] u) { u = Add (x, some) }>
  s = Add (t, one)
  y = Concat <axis = 0> (s, z)
}
"""


def test_a_variance_of_near_numbers_is_that_of_doubles() -> None:
    x = np.asarray([0.9866143465042114, 0.996024489402771], np.float32)
    found = outputs_in_doubles(onnx.parser.parse_model(GROUPS), {"x": x.reshape(1, 2, 1, 1)})
    assert found is not None
    wide = x.astype(np.float64)
    expected = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)
    assert narrowed(found[0]).dtype == np.float32
    assert np.array_equal(narrowed(found[0]).reshape(-1), expected.astype(np.float32))


def test_every_float_is_wide() -> None:
    model = onnx.parser.parse_model(PARTS)
    onnx.checker.check_model(in_doubles(model), full_check=True)
    feed = {"x": np.asarray([1, 2], np.float32), "n": np.asarray([3])}
    for chosen, expected in ((True, [1.5, 1.5]), (False, [2.1, 3.2])):
        found = outputs_in_doubles(model, {**feed, "c": np.asarray(chosen)})
        assert found is not None
        assert np.array_equal(narrowed(found[0]), np.asarray([*expected, 0, 0, 0], np.float32))
        assert narrowed(found[1]).dtype == np.float32  # doubles of the model are narrowed for the comparison, too
        assert found[2].dtype == np.int64


def test_what_the_evaluator_does_not_run_is_not_judged() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[2] x) => (float[2] y) { y = com.microsoft.Gelu (x) }'
    assert outputs_in_doubles(onnx.parser.parse_model(text), {"x": np.ones(2, np.float32)}) is None


def test_what_depends_on_nothing_unknown_is_judged() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2] x, float[2] z) => (float[2] y, float[2] w) { y = com.microsoft.Gelu (x) a = Mul (z, z) w = Sqrt (a) }"""
    feed = {"x": np.ones(2, np.float32), "z": np.asarray([1e30, 2], np.float32)}
    found = outputs_in_doubles(onnx.parser.parse_model(text), feed)
    assert found is not None
    assert found[0] is None
    assert np.array_equal(narrowed(found[1]), np.asarray([1e30, 2], np.float32))
