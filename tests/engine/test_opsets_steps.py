"""Steps between opsets: operators that ONNX Runtime had before the standard, and how short one softmax is written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphopt
from benchmarks.conversion import run_model
from graphopt.opsets import ConversionError, convert

BEFORE_ITS_TIME = [
    ("LayerNormalization <axis = 1, epsilon = 0.001> (x, g, b)", 12, 17),
    ("LayerNormalization (x, g)", 9, 17),
    ("ThresholdedRelu <alpha = 0.5> (x)", 9, 10),
    ("ThresholdedRelu (x)", 7, 17),
]


@pytest.mark.parametrize(("node", "opset", "target"), BEFORE_ITS_TIME)
def test_operators_that_the_runtime_had_first_are_those_of_the_standard(node: str, opset: int, target: int) -> None:
    """It saves models of old opsets with them, which it runs and no checker accepts."""
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 4, opset_import: ["" : {opset}]>
        g (float[2, 4] x) => (float[2, 4] y)
        <float[4] g = {{1, -2, 3, 0.5}}, float[4] b = {{0, 1, 2, -1}}>
        {{ y = {node} }}
        """
    )
    feed = {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)}
    after = convert(model, opset=target)
    np.testing.assert_array_equal(run_model(after, feed)[0], run_model(model, feed)[0])
    if "LayerNormalization" in node:
        raised = graphopt.optimize(model, "extended")
        assert raised.opset_import[0].version == 17
        np.testing.assert_array_equal(run_model(raised, feed)[0], run_model(model, feed)[0])


def test_an_operator_that_its_opset_does_not_have_is_named() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Gelu (x) }'
    )
    with pytest.raises(ConversionError, match="the standard has no Gelu before opset 20") as found:
        convert(model, opset=20)
    assert found.value.__cause__ is None


@pytest.mark.parametrize(
    ("shape", "axis", "ops"),
    [
        ("n,5,1,1", 1, ["Softmax"]),
        ("n,1,m", 1, ["Softmax"]),
        ("n,m,1", 1, ["Softmax"]),
        ("n,m,k", -1, ["Softmax"]),
        ("1,1", 0, ["Softmax"]),
        ("n,m,3,4", 2, ["Reshape", "Softmax", "Reshape"]),
        ("2,3,4", 0, ["Reshape", "Softmax", "Reshape"]),
    ],
)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_one_axis_takes_the_place_of_several_in_few_nodes(op: str, shape: str, axis: int, ops: list[str]) -> None:
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[{shape}] x) => (float[{shape}] y) {{ y = {op} <axis = {axis}> (x) }}
        """
    )
    for sizes in ((2, 3, 5), (0, 3, 2), (2, 0, 3)):
        given = shape.translate(str.maketrans(dict(zip("nmk", map(str, sizes), strict=True))))
        numbers = np.sin(np.arange(np.prod(list(map(int, given.split(","))))), dtype=np.float32)
        feed = {"x": numbers.reshape(list(map(int, given.split(","))))}
        after = convert(model, opset=13)
        assert [n.op_type for n in after.graph.node] == [op if n == "Softmax" else n for n in ops]
        np.testing.assert_allclose(run_model(after, feed)[0], run_model(model, feed)[0], rtol=1e-6)


ONE_BEHIND_THE_OTHER = {
    "softmax": ("a = Softmax (x)  b = LogSoftmax (a)  y = Hardmax (b)", 11, 13),
    "softmax of unknown sizes": ("s = Shape (x)  r = Reshape (x, s)  a = Softmax (r)  y = Softmax (a)", 11, 13),
    "resize": (
        'a = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, e, f)'
        '  y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (a, e, f)', 11, 7,
    ),
    "resize of computed sizes": ("g = Abs (f)  h = Identity (g)  a = Resize (x, h)  y = Resize (a, h)", 10, 11),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_BEHIND_THE_OTHER)
def test_operators_that_change_alike_may_read_one_another(name: str) -> None:
    """The second is written when the first has been replaced."""
    nodes, opset, target = ONE_BEHIND_THE_OTHER[name]
    model = onnx.parser.parse_model(f"""
<ir_version: 4, opset_import: ["" : {opset}]>
g (float[1,2,3,2] x) => (float[a,b,c,d] y) <float[4] f = {{1, 1, 2, 2}}, float[0] e = {{}}> {{ {nodes} }}""")
    onnx.checker.check_model(model, full_check=True)
    after = convert(model, opset=target)
    onnx.checker.check_model(after, full_check=True)
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 2), np.float32)
    assert np.allclose(run_model(model, {"x": x})[0], run_model(after, {"x": x})[0])


FROM_BEHIND = {
    "Scan": """g (float[2] x, float[2,3] v) => (float[2] y, float[2,3] w) {
      y, w = Scan <num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [-1],
        body = b (float[2] s, float[2] e) => (float[2] c, float[2] d) { c = Add (s, e)  d = Neg (c) }> (x, v)
    }""",
    "TopK": """g (float[2,3] v) => (float[1,3] y, int64[1,3] w) <int64[1] k = {1}> {
      y, w = TopK <axis = -2> (v, k)
    }""",
}


@pytest.mark.parametrize("name", FROM_BEHIND)
def test_axes_are_counted_from_the_front_before_opset_11(name: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["" : 12]> {FROM_BEHIND[name]}')
    after = convert(model, opset=10)
    stated = [a for a in after.graph.node[0].attribute if "ax" in a.name]
    assert stated
    assert all(axis >= 0 for a in stated for axis in (*a.ints, a.i))
    feed = {"v": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), "x": np.ones(2, np.float32)}
    feed = {entry.name: feed[entry.name] for entry in model.graph.input}
    for found, expected in zip(run_model(after, feed), run_model(model, feed), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("zero", "written_out"), [(0, False), (5, True), (None, True)])
def test_no_zero_point_is_dequantized_with_32_bits(zero: int | None, written_out: bool) -> None:
    """The standard allows none beside int32, in which 16 bits are dequantized before opset 21."""
    given = ", int16 z" if zero is None else ""
    stated = "" if zero is None else f", int16 z = {{{zero}}}"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (int16[4] x{given}) => (float[4] y) <float s = {{0.25}}{stated}> {{ y = DequantizeLinear (x, s, z) }}""")
    after = convert(model, opset=20)
    assert ("DequantizeLinear" not in [node.op_type for node in after.graph.node]) is written_out
    feed = {"x": np.asarray([-32768, -1, 7, 32767], np.int16)}
    feed |= {} if given == "" else {"z": np.asarray(-9, np.int16)}
    np.testing.assert_array_equal(run_model(after, feed)[0], run_model(model, feed)[0])


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("target", [11, 9, 8])
def test_unsigned_integers_of_64_bits_are_chosen_between(op: str, target: int) -> None:
    """The runtime has no `Where` of them."""
    model = onnx.parser.parse_model(f"""<ir_version: 7, opset_import: ["" : 13]>
        g (uint64[4] x, uint64[1] z) => (uint64[4] y) {{ y = {op} (x, z) }}""")
    feed = {"x": np.asarray([0, 1 << 63, (1 << 64) - 1, 7], np.uint64), "z": np.asarray([(1 << 63) + 1], np.uint64)}
    np.testing.assert_array_equal(run_model(convert(model, opset=target), feed)[0], run_model(model, feed)[0])
