"""graphopt inside of other tools, with the tools themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes.common import TopologicalSortPass

import graphopt
from benchmarks.skeleton import load_skeleton
from graphopt import demo
from graphopt.compat import onnxoptimizer, onnxslim
from graphopt.errors import UsageError
from graphopt.integrations.onnx_ir import OptimizePass
from graphopt.integrations.onnxruntime import preprocess
from graphopt.system.sessions import LIBRARIES, open_session
from graphopt.verify import compare, sample_inputs
from tests.cli.conftest import small_model


def test_a_pass_among_those_of_onnx_ir() -> None:
    model = onnx_ir.from_proto(small_model())
    steps = onnx_ir.passes.Sequential(OptimizePass(), TopologicalSortPass())
    result = steps(model)
    assert result.modified
    assert (len(model.graph), len(result.model.graph)) == (3, 2)
    assert compare(onnx_ir.to_proto(model), onnx_ir.to_proto(result.model)).ok
    again = OptimizePass()(result.model)
    assert not again.modified
    shapes = {"x": [2, 4]}
    fixed = OptimizePass(shapes=shapes)(result.model)
    assert fixed.modified
    assert not OptimizePass(shapes=shapes)(fixed.model).modified
    # An opset that was asked for is a change, with and without rewrites.
    assert OptimizePass(passes="eliminate_identity", opset=result.model.opset_imports[""] + 1)(result.model).modified


def test_slim_in_place_of_onnxslim(tmp_path: Path) -> None:
    model = small_model()
    onnx.save(model, tmp_path / "in.onnx")
    slimmed = onnxslim.slim(str(tmp_path / "in.onnx"), model_check=True)
    assert slimmed is not None
    assert [node.op_type for node in slimmed.graph.node] == ["MatMul", "Relu"]
    assert onnxslim.slim(model, str(tmp_path / "out.onnx"), input_shapes=["x:2,4"]) is None
    shape = onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [2, 300]
    kept = onnxslim.slim(model, skip_optimizations=["dead_node_elimination", "graph_fusion"])
    assert kept is not None
    assert len(kept.graph.node) == 3


@pytest.mark.parametrize(
    "options", [{"dtype": "fp16"}, {"skip_optimizations": ["everything"]}, {"input_shapes": ["x=2,4"]}]
)
def test_slim_ignores_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="slim: "):
        onnxslim.slim(small_model(), **options)


@pytest.mark.parametrize("passes", [[], ["nop"]])
def test_no_passes_do_nothing(passes: list[str]) -> None:
    model = small_model()
    assert onnxoptimizer.optimize(model, passes) == model
    assert onnxoptimizer.optimize(model, passes, fixed_point=True) == model
    assert graphopt.optimize(model, passes=[]) == model


class Reader:
    """Calibration data: a few inputs of the model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds: Iterator[Any] = iter([sample_inputs(model, seed=seed) for seed in range(3)])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def test_quantization_after_preprocessing(tmp_path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    model = demo.conv_maxpool()
    onnx.save(model, tmp_path / "model.onnx")
    preprocess(tmp_path / "model.onnx", tmp_path / "prepared.onnx")
    prepared = onnx.load(tmp_path / "prepared.onnx")
    named = {name for node in prepared.graph.node for name in node.output} - {o.name for o in prepared.graph.output}
    assert named <= {info.name for info in prepared.graph.value_info}  # the quantizer looks types up
    CalibrationDataReader.register(Reader)
    quantize_static(tmp_path / "prepared.onnx", tmp_path / "quantized.onnx", Reader(model))
    quantized = onnx.load(tmp_path / "quantized.onnx")
    assert "QuantizeLinear" in {node.op_type for node in quantized.graph.node}
    feed = sample_inputs(model)
    (expected,) = open_session(model).run(None, feed)
    (found,) = open_session(quantized).run(None, feed)
    assert np.abs(found - expected).max() <= 0.05 * np.ptp(expected)  # eight bits of the range, accumulated


def test_no_wrong_size_is_stated_for_quantization(tmp_path: Path) -> None:
    """At opset 10 the standard's inference takes the size of a slice for that of the whole axis."""
    model = onnx.parser.parse_model("""<ir_version: 5, opset_import: ["" : 10]>
        g (float[n] x) => (float[?] y, float[?] z) <int64[1] first = {1}, int64[1] last = {9}, int64[1] axis = {0}> {
          part = Slice (x, first, last, axis)  y = Neg (part)  z = Slice (x, first, last, axis)
        }""")
    before = model.SerializeToString()
    for source in (model, before):
        preprocess(source, tmp_path / "prepared.onnx")
        prepared = onnx.load(tmp_path / "prepared.onnx")
        inner = {info.name: info.type.tensor_type for info in prepared.graph.value_info}
        sizes = [dim.dim_param or dim.dim_value for stated in inner.values() for dim in stated.shape.dim]
        assert all(stated.elem_type == onnx.TensorProto.FLOAT for stated in inner.values())
        assert sizes == [0] * len(inner)
        assert prepared.graph.output == model.graph.output
    assert model.SerializeToString() == before


@pytest.mark.parametrize("key", ["made/mlp_mixer", "ts/resmlp_12_224"])
def test_weights_stay_where_quantizers_look_for_them(key: str) -> None:
    """They quantize a constant right operand; of a left one `quantize_dynamic` makes nothing, and others lose by it."""

    def from_the_left(model: onnx.ModelProto) -> int:
        weights = {tensor.name for tensor in model.graph.initializer}
        return sum(node.op_type == "MatMul" and node.input[0] in weights for node in model.graph.node)

    model = load_skeleton(key)
    assert from_the_left(graphopt.optimize(model)) <= from_the_left(model)
    assert from_the_left(graphopt.optimize(model, level="extended")) > from_the_left(model)


@pytest.mark.parametrize("key", ["ts/crnn", "ts/mobilenetv2_landmarks"])
def test_basic_results_run_in_the_reference_evaluator(key: str) -> None:
    """A second runtime, the standard's own: nothing in a result is of ONNX Runtime alone."""
    optimized = graphopt.optimize(load_skeleton(key))
    assert {node.domain for node in optimized.graph.node} <= {"", "ai.onnx"}
    assert ReferenceEvaluator(optimized).output_names == [output.name for output in optimized.graph.output]


def test_basic_results_agree_in_the_reference_evaluator() -> None:
    model = demo.conv_maxpool()
    feed = sample_inputs(model)
    (expected,) = ReferenceEvaluator(model).run(None, feed)
    (found,) = ReferenceEvaluator(graphopt.optimize(model)).run(None, feed)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize(
    "key", ["", "ts/crnn", "ts/gru_tagger", "ts/squeezenet1_1", "dynamo_raw/mobilenetv3_small_100"]
)
def test_basic_results_agree_in_openvino(key: str) -> None:
    openvino = pytest.importorskip("openvino", reason="openvino is not installed: its own job of CI has it")
    model = load_skeleton(key) if key else demo.conv_maxpool()
    feed = sample_inputs(model)
    core = openvino.Core()
    found = []
    for each in (model, graphopt.optimize(model)):
        compiled = core.compile_model(core.read_model(each.SerializeToString()), "CPU")
        found.append([np.asarray(value) for value in compiled(feed).values()])
    for before, after in zip(*found, strict=True):
        scale = float(np.abs(before).max())
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-5 * scale)


def custom() -> onnx.ModelProto:
    """y = Inverse(Identity(x)), whose second operator a library of onnxruntime-extensions defines."""
    return onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "ai.onnx.contrib" : 1]>
        g (float[2, 2] x) => (float[2, 2] y) { same = Identity(x)  y = ai.onnx.contrib.Inverse(same) }
    """)


def test_libraries_of_custom_operators_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    extensions = pytest.importorskip("onnxruntime_extensions", reason="onnxruntime-extensions is not installed")
    monkeypatch.setenv(LIBRARIES, extensions.get_library_path())
    optimized = graphopt.optimize(custom())
    assert [node.op_type for node in optimized.graph.node] == ["Inverse"]
    feed = {"x": np.array([[2, 0], [0, 4]], np.float32)}
    for model in (custom(), optimized):
        np.testing.assert_allclose(open_session(model).run(None, feed)[0], [[0.5, 0], [0, 0.25]])


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LIBRARIES, str(tmp_path / "missing.so"))
    with pytest.raises(UsageError, match=r"GRAPHOPT_CUSTOM_OPS: .*missing.so cannot be loaded"):
        open_session(small_model())


def test_models_of_skl2onnx(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: its own job of CI has it")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((50, 4)).astype(np.float32)
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(inputs, inputs[:, 0] > 0)
    model = skl2onnx.to_onnx(fitted, inputs[:1], options={"zipmap": False})
    optimized = graphopt.optimize(model)
    assert compare(model, optimized).ok


def test_a_pass_of_olive(tmp_path: Path) -> None:
    pytest.importorskip("olive.passes", reason="olive is not installed: its own job of CI has it")
    from olive.hardware import DEFAULT_CPU_ACCELERATOR
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict

    from graphopt.integrations.olive import Graphopt

    onnx.save(small_model(external=True), tmp_path / "model.onnx")
    wanted = create_pass_from_dict(Graphopt, {"level": "basic", "verify": True}, True, DEFAULT_CPU_ACCELERATOR)
    output = wanted.run(ONNXModelHandler(str(tmp_path), onnx_file_name="model.onnx"), str(tmp_path / "out"))
    assert compare(tmp_path / "model.onnx", output.model_path).ok
    assert len(onnx.load(output.model_path).graph.node) == 2


def test_a_workflow_of_olive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says: a step of a workflow's JSON, found by a package configuration."""
    workflows = pytest.importorskip("olive.workflows", reason="olive is not installed: its own job of CI has it")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "other-tools.md").read_text()
    (tmp_path / "packages.json").write_text(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    workflow = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[1])
    onnx.save(small_model(), tmp_path / "model.onnx")
    workflows.run(workflow, package_config=str(tmp_path / "packages.json"))
    assert len(onnx.load(tmp_path / "out" / "model.onnx").graph.node) == 2


def test_a_model_of_several_parts_in_olive(tmp_path: Path) -> None:
    pytest.importorskip("olive.passes", reason="olive is not installed: its own job of CI has it")
    from olive.hardware import DEFAULT_CPU_ACCELERATOR
    from olive.model import CompositeModelHandler, ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict

    from graphopt.integrations.olive import Graphopt

    parts = []
    for name in ("encoder", "decoder"):
        onnx.save(small_model(), tmp_path / f"{name}.onnx")
        parts.append(ONNXModelHandler(str(tmp_path / f"{name}.onnx")))
    wanted = create_pass_from_dict(Graphopt, {"level": "basic"}, True, DEFAULT_CPU_ACCELERATOR)
    output = wanted.run(CompositeModelHandler(parts, ["encoder", "decoder"]), str(tmp_path / "out"))
    assert [len(onnx.load(part.model_path).graph.node) for part in output.model_components] == [2, 2]
