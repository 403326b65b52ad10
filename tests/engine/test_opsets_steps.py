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
