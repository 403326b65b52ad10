"""Reports for programs and notebooks: the JSON Schema holds for real output, a run shows itself, metrics run end to end."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

from graphopt import PassManager, demo
from graphopt.audit import Audit, audit
from graphopt.audit.bench import Variant
from graphopt.audit.metric import Metric, evaluate

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "audit.schema.json").read_text())
METRIC = "def brightness(outputs, data):\n    return float(outputs['output'].mean()) + float(data['offset'][0])\n"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("metric")
    (folder / "own_metric.py").write_text(METRIC)
    model = demo.conv_maxpool()
    (spec,), (result,) = model.graph.input, model.graph.output
    result_name = result.name
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            node.output[i] = "output" if name == result_name else name
    result.name = "output"
    image = np.random.default_rng(0).standard_normal((3, 3, 224, 224)).astype(np.float32)
    np.savez(folder / "data.npz", **{spec.name: image, "offset": np.array([1.0, 2.0, 3.0])})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return audit(
            model, levels=("basic",), against=["onnxoptimizer"], rounds=2, starts=1, verify=True,
            data=folder / "data.npz", metric="own_metric:brightness",
        )  # fmt: skip


def test_json_keeps_to_its_schema(found: Audit) -> None:
    data = json.loads(found.to_json())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(data, SCHEMA)
    assert {row["name"] for row in data["rows"]} >= {"raw, ORT off", "raw, ORT all", "graphopt basic", "onnxoptimizer"}
    data["rows"][0]["status"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_the_schema_describes_what_failed_too() -> None:
    row = Audit.__dataclass_fields__  # the schema names every field of the record
    assert set(SCHEMA["properties"]) >= set(row) - {"files"}


def test_a_metric_is_computed_for_every_contestant(found: Audit) -> None:
    assert found.metric == "brightness"
    values = [row.metric for row in found.rows]
    assert None not in values
    assert max(values) - min(values) < 1e-5
    assert "brightness" in found.to_markdown()
    assert "| graphopt basic |" in found.to_markdown()


def test_a_run_in_a_notebook() -> None:
    result = PassManager("basic").run(demo.resnet18())
    text = result._repr_html_()
    assert f"{result.before.nodes:,} → {result.after.nodes:,} nodes" in text
    assert f"<td>BatchNormalization</td><td>{result.before.ops['BatchNormalization']}</td><td>0</td>" in text
    for name, times in result.hits.items():
        assert f"<td>{name}</td><td>{times}</td>" in text


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("(float[N,4] x, float t) => (float[N,4] y) { y = Mul(x, t) }", 40),
        ("(float[N,4] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }", 3),  # one number for each batch
        ("() => (float[2] y) { y = Constant <value_floats = [1.0, 2.0]> () }", 2),
        ("(float[N,4] x) => (seq(float[N,4]) y) { y = SequenceConstruct (x, x) }", 6),
    ],
)
def test_a_metric_takes_single_numbers_and_lists(text: str, runs: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'), path)
    data = {"x": np.ones((40, 4), np.float32), "t": np.array(2, np.float32), "share": np.array(0.5)}
    metric = Metric.of(data, lambda outputs, given: len(outputs["y"]) if given["share"] == 0.5 else -1.0)
    assert metric is not None
    metric.first_batch(onnx.load(path))
    assert evaluate(metric, Variant("raw", str(path), "none")) == runs
