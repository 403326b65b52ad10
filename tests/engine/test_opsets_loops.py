"""`Scan` as a loop, and over batches: what its body reads by name, whatever names its own values have."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt.opsets import ConversionError, convert

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2

BODIES = {
    "a row has the name of all": "(float[3] before, float[3] x) => (float[3] now, float[3] r) { now = Add (before, x)",
    "names the other way round": "(float[3] x, float[3] s) => (float[3] now, float[3] r) { now = Sub (x, s)",
    "names of the results": "(float[3] s, float[3] x) => (float[3] y, float[3] r) { y = Add (s, x)",
    "an operand inside": """(float[3] before, float[3] row) => (float[3] now, float[3] r) {
      apart = Sub (before, row)  all = ReduceMax <axes = [0], keepdims = 0> (s)  now = Mul (apart, all)""",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("target", [15, 8, 7])
def test_values_of_a_body_keep_their_names(name: str, target: int) -> None:
    body = BODIES[name].replace("{", "{ r = Neg (x)" if "float[3] x" in BODIES[name] else "{ r = Neg (row)", 1)
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 16]>
g (float[2,3] x, float[3] s) => (float[3] y, float[2,3] z) {{
  y, z = Scan <num_scan_inputs = 1, body = b {body} }}> (s, x)
}}""")
    onnx.checker.check_model(model, full_check=True)
    feed = {"x": ROWS, "s": ROWS[0]}
    after = convert(model, opset=target)
    onnx.checker.check_model(after, full_check=True)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


def test_a_body_without_shapes_keeps_its_names_too() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 16]>
g (float[2,3] x, float[3] s) => (float[3] y, float[2,3] z) {
  y, z = Scan <num_scan_inputs = 1, body = b (float[3] s, float[3] x) => (now, r) { now = Add (s, x)  r = Neg (now) }> (s, x)
}""")
    feed = {"x": ROWS, "s": ROWS[0]}
    assert differs(run_model(model, feed), run_model(convert(model, opset=15), feed)) is None


def test_one_value_is_gone_over_twice() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 4, opset_import: ["" : 8]>
g (float[1,2,3] x, float[1,3] s) => (float[1,3] y, float[1,2,3] z) {
  y, z = Scan <num_scan_inputs = 2, body = b (float[3] s, float[3] x, float[3] v) => (float[3] now, float[3] r) {
    now = Add (s, x)  r = Mul (now, v)
  }> ( , s, x, x)
}""")
    feed = {"x": ROWS[None], "s": ROWS[:1]}
    assert differs(run_model(model, feed), run_model(convert(model, opset=9), feed)) is None


MAPPED = {
    "x": "(float[2,3] row) => (float[2,3] r) { r = Add (row, x)",
    "x beside one of its name": "(float[2,3] s) => (float[2,3] r) { t = Neg (x)  r = Add (s, t)",
}


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("target", [16, 13])
def test_what_is_mapped_reads_values_from_outside(name: str, target: int) -> None:
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 17]>
g (seq(float[2,3]) s, float[2,3] x) => (seq(float[2,3]) y) {{ y = SequenceMap <body = b {MAPPED[name]} }}> (s) }}""")
    onnx.checker.check_model(model, full_check=True)
    feed = {"s": [ROWS, -ROWS], "x": ROWS}
    after = convert(model, opset=target)
    onnx.checker.check_model(after, full_check=True)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


def test_a_name_of_the_function_is_refused() -> None:
    """The function of the standard has an input of this name, which its loop reads beside the body."""
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
g (seq(float[2,3]) s, float[2,3] input_sequence) => (seq(float[2,3]) y) {
  y = SequenceMap <body = b (float[2,3] row) => (float[2,3] r) { r = Add (row, input_sequence) }> (s)
}""")
    with pytest.raises(ConversionError, match="SequenceMap 'y'"):
        convert(model, opset=16)


LOOP = """
<ir_version: 8, opset_import: ["" : 13]>
g (int64 n, bool on) => (int64[k] y) {
  y = Loop (n, on) <body = counting (int64 at, bool still) => (bool again, int64 now) {
    again = Identity (still)
    now = Identity (at)
  }>
}
"""


def test_a_loop_that_carries_nothing_stays_above_opset_10() -> None:
    model = onnx.parser.parse_model(LOOP)
    assert convert(model, opset=11).opset_import[0].version == 11
    with pytest.raises(ConversionError, match="v_initial is required before opset 11"):
        convert(model, opset=10)
