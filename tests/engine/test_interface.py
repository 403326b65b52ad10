"""Shapes that the user gives: refused where they contradict the model, followed everywhere else."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from graphopt.errors import UsageError
from graphopt.manager import PassManager, optimize
from graphopt.opsets import ConversionError
from graphopt.opsets.conversion import convert_source

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[n,3] x, float[n,m] z) => (float[n,3] y, float[n,m] w)'
    "{ a = Identity (x)  y = Relu (a)  w = Neg (z) }"
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shapes": {"q": [1]}}, "no input 'q' to give a shape; inputs are x, z"),
        ({"shapes": {"x": [1]}}, "input 'x' has rank 2, the shape \\[1\\] has 1"),
        ({"shapes": {"x": [1, 4]}}, "input 'x': dimension 3 cannot become 4"),
        ({"shapes": {"x": [1, 3], "z": [2, 2]}}, "dimension 'n' cannot be both 1 and 2"),
        ({"dims": {"k": 1}}, "no symbolic dimension 'k'; the inputs have m, n"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, dict[str, list[int]]], message: str) -> None:
    before = MODEL.SerializeToString()
    with pytest.raises(UsageError, match=message):
        optimize(MODEL, **settings)
    assert MODEL.SerializeToString() == before


def shape(info: onnx.ValueInfoProto) -> list[int | str]:
    return [d.dim_value or d.dim_param for d in info.type.tensor_type.shape.dim]


@pytest.mark.parametrize("settings", [{"shapes": {"x": [5, 3]}}, {"dims": {"n": 5}}])
def test_sizes_reach_the_whole_interface(settings: dict[str, dict[str, list[int]]]) -> None:
    before = MODEL.SerializeToString()
    result = PassManager(verify=True, **settings).run(MODEL)
    assert [shape(v) for v in (*result.model.graph.input, *result.model.graph.output)] == [
        [5, 3],
        [5, "m"],
        [5, 3],
        [5, "m"],
    ]
    assert MODEL.SerializeToString() == before


def test_what_is_refused_changes_nothing_inplace_either() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[?,3] x, float[4] z) => (float[?,3] y) { y = Relu (x) }'
    )
    before = model.SerializeToString()
    for settings in ({"shapes": {"x": [2, 3], "z": [5]}}, {"shapes": {"x": [2, 3]}, "dims": {"k": 1}}):
        with pytest.raises(UsageError):
            optimize(model, inplace=True, **settings)
        assert model.SerializeToString() == before


@pytest.mark.parametrize("settings", [{"dims": {"n": 4}}, {"shapes": {"x": [4]}}, {"constant_initializers": True}])
def test_a_model_that_is_refused_after_it_is_loaded_stays_as_it_was(settings: Any) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n] x, float[1] w) => (string[n] y) <float[1] w = {1}> {
          z = Mul (x, w)  s = Cast <to = 8> (z)  y = StringConcat (s, s)
        }""")
    before = model.SerializeToString()
    with pytest.raises(ConversionError, match="StringConcat"):
        optimize(model, inplace=True, opset=12, **settings)
    assert model.SerializeToString() == before
    if "constant_initializers" not in settings:
        with pytest.raises(ConversionError, match="StringConcat"):
            convert_source(model, 12, inplace=True, **settings)
        assert model.SerializeToString() == before


def test_what_is_open_in_any_form_can_be_fixed() -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[-1,3] x, float s) => (float[?,3] y) { y = Mul (x, s) }'
    model = onnx.parser.parse_model(text)
    model.graph.input[1].type.tensor_type.ClearField("shape")
    result = optimize(model, shapes={"x": [2, 3], "s": []})
    assert [shape(info) for info in result.graph.input] == [[2, 3], []]
    assert result.graph.input[1].type.tensor_type.HasField("shape")


def with_defaults(ir_version: int) -> onnx.ModelProto:
    """A scale and a bias that the file lists as inputs, too."""
    model = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["" : 9]> g (float[n,2] x, float[2,2] w, float[2] s) => (float[n,2] y)'
        "<float[2,2] w = {1, 2, 3, 4}, float[2] s = {2, 3}> { p = MatMul (x, w)  y = Mul (p, s) }"
    )
    model.ir_version = ir_version
    return model


@pytest.mark.parametrize("version", [3, 4, 9])
def test_initializers_that_are_inputs_are_constants_when_asked_for(version: int) -> None:
    model = with_defaults(version)
    before = model.SerializeToString()
    kept = PassManager(verify=True).run(model)
    assert [info.name for info in kept.model.graph.input] == ["x", "w", "s"]
    assert (kept.changed, kept.overridable, kept.model.ir_version) == (False, 2, version)
    result = PassManager(verify=True, constant_initializers=True).run(model)
    assert [info.name for info in result.model.graph.input] == ["x"]
    assert [node.op_type for node in result.model.graph.node] == ["MatMul"]
    assert (result.overridable, result.model.ir_version) == (0, max(version, 4))
    onnx.checker.check_model(result.model, full_check=True)
    assert model.SerializeToString() == before
    model = optimize(model, inplace=True, constant_initializers=True)
    assert model.SerializeToString() == result.model.SerializeToString()


def test_constant_initializers_leave_other_interfaces_alone() -> None:
    result = PassManager(constant_initializers=True).run(MODEL)
    assert result.model.graph.input == MODEL.graph.input
    assert result.model.ir_version == MODEL.ir_version


def test_an_initializer_that_is_put_out_is_no_input_either() -> None:
    model = with_defaults(3)
    model.graph.output.append(model.graph.input[2])
    result = PassManager(verify=True, constant_initializers=True).run(model)
    assert [info.name for info in result.model.graph.output] == ["y", "s"]
    assert [info.name for info in result.model.graph.input] == ["x"]
