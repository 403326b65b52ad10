"""What comes of a valid model is valid, or it is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt.opsets import ConversionError, convert, convert_source

WIDE_WINDOW = """
<ir_version: 8, opset_import: ["" : 13]>
g (bool c, float[1,1,3] x, float[1,1,5] w) => (float[a,b,d] y) {
  y = If (c) <then_branch = one () => (o) { o = Conv (x, w) }, else_branch = two () => (p) { p = Relu (x) }>
}
"""
"""To inference the window leaves -1 elements, which graphopt does not take for a size."""

SCALARS = {
    "ArgMax of a scalar": """
        <ir_version: 8, opset_import: ["" : 10]> g (float x) => (int64 y) { y = ArgMax <axis = 0> (x) }
    """,
    "ReduceSum of a scalar": """
        <ir_version: 8, opset_import: ["" : 10]> g (float x) => (float y) { y = ReduceSum <axes = [0]> (x) }
    """,
}
"""The runtime looks for no axis there, nor did inference until opset 10."""

BESIDE = {
    "an operator of the runtime": "z = com.microsoft.Gelu (v) r = Relu (z)",
    "one that nobody knows": "z = my.Own (v) r = Relu (z)",
}
"""Beside any of these onnx's check finds nothing in the whole model."""


@pytest.mark.parametrize("target", [10, 7])
def test_branches_whose_shapes_are_in_doubt(target: int) -> None:
    model = onnx.parser.parse_model(WIDE_WINDOW)
    onnx.checker.check_model(model, full_check=True)
    onnx.checker.check_model(convert(model, opset=11), full_check=True)
    with pytest.raises(ConversionError, match=r"would not be a valid model: \(op_type:If\)") as error:
        convert(model, opset=target)
    assert not error.value.refusals


@pytest.mark.parametrize("name", SCALARS)
def test_axes_that_a_scalar_does_not_have(name: str) -> None:
    model = onnx.parser.parse_model(SCALARS[name])
    onnx.checker.check_model(model, full_check=True)
    with pytest.raises(ConversionError, match="not be a valid model"):
        convert(model, opset=11)


@pytest.mark.parametrize("beside", BESIDE)
def test_beside_operators_that_onnx_does_not_know(beside: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 10, "com.microsoft" : 1, "my" : 1]>
        g (float x, float[2] v, bool c) => (float y, float[2] z, float[2] r) {{
          y = ReduceL1 <axes = [1]> (x) {BESIDE[beside]}
        }}
    """)
    onnx.checker.check_model(model, full_check=True)
    with pytest.raises(ConversionError, match="not be a valid model: .*ReduceL1"):
        convert(model, opset=11)
    model.graph.node[0].ClearField("attribute")
    assert convert(model, opset=11).graph.node[0].op_type == "ReduceL1"


def test_beside_calls_of_functions_with_such_operators_inside() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 10, "my" : 1, "f" : 1]>
        g (float x, float[2] v) => (float y, float[2] r) {
          y = ReduceL1 <axes = [1]> (x)
          z = f.Outer (v)
          r = Relu (z)
        }
        <domain: "f", opset_import: ["" : 10, "f" : 1]> Outer (v) => (z) { z = f.Inner (v) }
        <domain: "f", opset_import: ["" : 10, "my" : 1]> Inner (v) => (z) { z = my.Own (v) }
    """)
    with pytest.raises(ConversionError, match="not be a valid model: .*ReduceL1"):
        convert(model, opset=11)


def test_what_was_not_valid_is_converted_all_the_same() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 3, opset_import: ["" : 13]>
        g (float[2,3] x, int64[2,3] i) => (float[7,7] y, float[2,3] z) { y = GatherElements (x, i) z = Celu (x) }
    """)
    with pytest.raises(Exception, match="differ in dimension"):
        onnx.checker.check_model(model, full_check=True)
    conversion = convert_source(model, 10)
    assert conversion.model.opset() == 10
    assert conversion.written_out == {"GatherElements": 1, "Celu": 1}


def test_weights_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[4,32] x) => (float[4,1] z) <int64[1] a = {1}> { y = MatMul (x, w) z = ReduceSum (y, a) }
    """)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((32, 40), np.float32), "w"))
    checked: list[onnx.ModelProto] = []
    monkeypatch.setattr(onnx.checker, "check_model", lambda proto, full_check: checked.append(proto))
    convert(model, opset=18)
    assert [value.name for value in checked[0].graph.input] == ["x", "w"]
    assert [tensor.name for tensor in checked[0].graph.initializer] == ["a"]


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="the opset is newer")
def test_a_type_that_goes_is_refused_from_there_on() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]> g (int32[4] x) => (int32[1] y) { y = ReduceLogSum (x) }
    """)
    with pytest.raises(ConversionError, match=r"does not take tensor\(int32\) from opset 28 on \(nearest opset: 27\)"):
        convert(model, opset=28)


def test_what_keeps_inference_busy_is_not_checked() -> None:
    """Functions that call each other twice, and as many parts as memory does not hold sizes of."""
    calls = "".join(
        f'<domain: "f", opset_import: ["" : 13, "f" : 1]> F{i} (a) => (c) {{ b = f.F{i + 1} (a)  c = f.F{i + 1} (b) }}'
        for i in range(40)
    )
    last = '<domain: "f", opset_import: ["" : 13]> F40 (a) => (b) { b = Neg (a) }'
    head = '<ir_version: 8, opset_import: ["" : 13, "f" : 1]> g (float[2] x) => (float[2] y) { y = f.F0 (x) }'
    assert convert_source(onnx.parser.parse_model(head + calls + last), 12).model.opset() == 12
    parts = """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2] x) => (float[2] y) { y = Split <num_outputs = 4611686018427387904> (x) }"""
    assert convert_source(onnx.parser.parse_model(parts), 20).model.opset() == 20
