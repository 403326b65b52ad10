"""Functions whose attributes come from the call: a reference is no value, and no step may take it for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt import optimize
from graphopt.opsets import ConversionError, convert

PLAIN = {"x": np.asarray([[1, -2, 3], [1, 5, 3]], np.float32)}
SEQUENCE = {
    "x": np.ones((2, 1, 3), np.float32), "w": np.ones((1, 3, 3), np.float32), "r": np.ones((1, 3, 1), np.float32),
}  # fmt: skip
GRID = {"x": np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3), "w": np.full((1, 2, 2, 2), 0.3, np.float32)}

REFERRED: list[tuple[str, str, dict[str, Any], int, list[int]]] = [
    ("ArgMax <axis = 0, select_last_index: int = @a>", "0", PLAIN, 12, [11]),
    ("ArgMax <axis = 0, select_last_index: int = @a>", "1", PLAIN, 12, [11]),
    ("ReduceSum <noop_with_empty_axes: int = @a>", "0", PLAIN, 13, [12]),
    ("ReduceMax <noop_with_empty_axes: int = @a>", "0", PLAIN, 18, [17]),
    ("ReduceMax <noop_with_empty_axes: int = @a>", "1", PLAIN, 18, [17]),
    ("GRU <hidden_size = 1, layout: int = @a>", "0", SEQUENCE, 14, [13]),
    ("GridSample <mode: string = @a>", '"bilinear"', GRID, 16, [20, 22]),
    ("GridSample <mode: string = @a>", '"linear"', GRID, 20, [16, 19]),
    ("Softmax <axis: int = @a>", "0", PLAIN, 12, [13, 20]),
    ("Softmax <axis: int = @a>", "0", PLAIN, 13, [10, 12]),
    ("LeakyRelu <alpha: float = @a>", "0.25", PLAIN, 15, [7, 16]),
]


@pytest.mark.parametrize(("call", "given", "feed", "opset", "targets"), REFERRED)
def test_what_a_call_states_is_what_counts(
    call: str, given: str, feed: dict[str, np.ndarray], opset: int, targets: list[int]
) -> None:
    names = ", ".join(feed)
    inputs = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in feed.items())
    kind = "int64" if call.startswith("Arg") else "float"
    model = onnx.parser.parse_model(f"""
<ir_version: 9, opset_import: ["" : {opset}, "of" : 1]>
g ({inputs}) => ({kind} y) {{ y = of.F <a = {given}> ({names}) }}
<opset_import: ["" : {opset}], domain: "of">
F <a> ({names}) => (y) {{ y = {call} ({names}) }}
""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    expected = run_model(model, feed)
    for target in targets:
        assert differs(expected, run_model(convert(model, opset=target), feed)) is None


WINDOW = """
<ir_version: 8, opset_import: ["" : 17, "of" : 1]>
g (int32 x) => (float[N] y) { y = of.F (x) }
<opset_import: ["" : 17], domain: "of">
F (x) => (y) { y = HammingWindow <periodic = 0> (x) }
"""


def test_a_body_that_is_written_out_in_a_function_has_the_values_of_its_operator() -> None:
    """The body refers to attributes of the operator, of which the function around it knows nothing."""
    model, feed = onnx.parser.parse_model(WINDOW), {"x": np.asarray(10, np.int32)}
    after = convert(model, opset=14)
    assert len(after.functions) == 1
    assert differs(run_model(model, feed), run_model(after, feed)) is None


SKIPPED = """
<ir_version: 11, opset_import: ["" : 23, "of" : 1]>
g (float[1,2,3,4] x) => (float[1,2,3,4] y, float[1,2,3,3] scores) { y, scores = of.F <mode = 3> (x) }
<opset_import: ["" : 23], domain: "of">
F <mode> (x) => (y, scores) { y, "", "", scores = Attention <qk_matmul_output_mode: int = @mode> (x, x, x) }
"""


def test_a_body_is_brought_in_whose_operators_leave_outputs_out() -> None:
    model = onnx.parser.parse_model(SKIPPED)
    feed = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4)}
    after = convert(model, opset=18)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


REDUCED = """
<ir_version: 8, opset_import: ["" : 18, "of" : 1]>
g (float[2,3] x) => (float[2,1] y) { y = of.F <keep = 1> (x) }
<opset_import: ["" : 18], domain: "of">
F <keep> (x) => (y) {
  axes = Constant <value_ints = [1]> ()
  y = ReduceMax <keepdims: int = @keep> (x, axes)
}
"""


def test_an_optimization_brings_calls_in_too_where_they_stand_in_the_way_of_its_opset() -> None:
    after = optimize(onnx.parser.parse_model(REDUCED), opset=13)
    assert [(entry.domain, entry.version) for entry in after.opset_import if not entry.domain] == [("", 13)]
    assert differs([np.asarray([[3], [5]], np.float32)], run_model(after, PLAIN)) is None


STATED = [
    ("a = Cast <to: int = @a> (x) b = Max (a, a)", "6", 12, 11),
    ("a = Cast <to: int = @a> (x) b = Greater (a, a)", "6", 9, 8),
    ("s = Shape (x) a = ConstantOfShape <value: tensor = @a> (s) b = Max (a, a)", "int32[1] {3}", 12, 11),
]


@pytest.mark.parametrize(("body", "given", "opset", "target"), STATED)
def test_a_call_may_state_a_type_that_an_older_opset_lacks(body: str, given: str, opset: int, target: int) -> None:
    model = onnx.parser.parse_model(f"""
<ir_version: 9, opset_import: ["" : {opset}, "of" : 1]>
g (float[2,3] x) => (float[2,3] y) {{ y = of.F <a = {given}> (x) }}
<opset_import: ["" : {opset}], domain: "of">
F <a> (x) => (y) {{ {body} y = Cast <to = 1> (b) }}
""")
    after = convert(model, opset=target)
    onnx.checker.check_model(after, full_check=True)
    assert differs(run_model(model, PLAIN), run_model(after, PLAIN)) is None


NOWHERE = [
    ("a = RandomNormal <dtype = 16, shape = [3]> ()", 22, 21),
    ("s = Shape (x) a = ConstantOfShape <value = bfloat16[1] {1}> (s)", 20, 19),
]


@pytest.mark.parametrize(("body", "opset", "target"), NOWHERE)
def test_a_type_that_only_a_result_has_counts_in_functions(body: str, opset: int, target: int) -> None:
    """The declared shape is wrong, so that the full check says nothing of the result."""
    model = onnx.parser.parse_model(f"""
<ir_version: 10, opset_import: ["" : {opset}, "of" : 1]>
g (float[2,3] x) => (float y) {{ y = of.F (x) }}
<opset_import: ["" : {opset}], domain: "of">
F (x) => (y) {{ {body} b = Cast <to = 1> (a) y = Add (b, x) }}
""")
    with pytest.raises(ConversionError, match="its element type is not supported"):
        convert(model, opset=target)
