"""Weights in files that are not there, or not to be read: they stay references, and what needs them declines."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto

import graphopt
from benchmarks.skeleton import FOLDER, load_skeleton, read_skeleton, refill
from graphopt import ExternalData, PassManager
from graphopt.errors import ModelError, UsageError
from graphopt.ir import Model
from graphopt.manager import optimize_file
from graphopt.verify import compare
from tests.cli.conftest import Run, run

__all__ = ["run"]

TEXT = """
    <ir_version: 9, opset_import: ["" : 17]>
    g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) <float[4, 3, 1, 1] w, float[4] one, float[4] zero> {
        same = Identity(x)
        c = Conv(same, w)
        b = BatchNormalization(c, one, zero, zero, one)
        y = Relu(b)
    }
"""


def saved(folder: Path) -> Path:
    """A model whose weights are in a file of their own, named."""
    model = onnx.parser.parse_model(TEXT)
    generator = np.random.default_rng(0)
    for name, dims in {"w": (4, 3, 1, 1), "one": (4,), "zero": (4,)}.items():
        array = generator.random(dims, np.float32) + 0.5
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    folder.mkdir(exist_ok=True)
    graphopt.Model.load(model).save(folder / "model.onnx", ExternalData("weights.bin", threshold=0))
    return folder / "model.onnx"


def places(path: Path) -> dict[str, dict[str, str]]:
    model = onnx.load(path, load_external_data=False)
    return {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in model.graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
    }


def test_what_is_missing_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights.bin' not found in .*--opaque-weights missing"):
        graphopt.optimize(path)


@pytest.mark.parametrize("wanted", ["missing", "all"])
def test_weights_stay_references(tmp_path: Path, wanted: str, caplog: pytest.LogCaptureFixture) -> None:
    path = saved(tmp_path)
    before = places(path)
    data = (tmp_path / "weights.bin").read_bytes()
    if wanted == "missing":
        (tmp_path / "weights.bin").unlink()
    with caplog.at_level(logging.WARNING, "graphopt"):
        result = optimize_file(path, tmp_path / "out.onnx", opaque_weights=wanted, strict=True, verify=True)
    assert result.verification is not None
    assert result.verification.ok  # with random weights: nothing was read
    assert places(tmp_path / "out.onnx") == before
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.node] == [
        "Conv", "BatchNormalization", "Relu"
    ]  # fmt: skip
    assert (result.unread.tensors, result.unread.bytes, result.unread.files) == (3, 80, ("weights.bin",))
    assert "3 weights (80 bytes) left unread, expected beside the result in weights.bin" in caplog.text
    (tmp_path / "weights.bin").write_bytes(data)
    assert compare(path, tmp_path / "out.onnx").ok


def test_what_is_there_is_read_where_only_the_missing_may_be_left(tmp_path: Path) -> None:
    result = PassManager(opaque_weights="missing").run(saved(tmp_path))
    assert result.unread.tensors == 0
    assert [node.op_type for node in result.model.graph.node] == ["Conv", "Relu"]


def test_an_explanation_says_what_was_missing(tmp_path: Path) -> None:
    found = graphopt.explain(saved(tmp_path), opaque_weights="all")
    assert [step.event.rule for step in found.steps] == ["eliminate_identity"]
    assert "fuse_bn_into_conv: one is not constant" in str(found)


def test_data_that_is_still_referred_to_is_kept(tmp_path: Path) -> None:
    path = saved(tmp_path / "from")
    own = Model.load(path)
    own.save(tmp_path / "model.onnx", ExternalData(threshold=0))
    (place,) = {entry["location"] for entry in places(tmp_path / "model.onnx").values()}
    optimize_file(tmp_path / "model.onnx", tmp_path / "model.onnx", opaque_weights="all")
    assert (tmp_path / place).exists()
    assert compare(path, tmp_path / "model.onnx").ok


def test_new_data_replaces_none_that_is_referred_to(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(ModelError, match="left unread"):
        optimize_file(path, path, external_data=ExternalData("weights.bin"), opaque_weights="all")
    optimize_file(path, path, external_data=ExternalData("other.bin"), opaque_weights="all")
    assert {entry["location"] for entry in places(path).values()} == {"weights.bin"}


def test_constants_in_nodes_stay_references_too(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[4] x, bool c) => (float[4] y) {
            w = Constant <value = float[4] {1, 2, 3, 4}> ()
            s = Add(w, w)
            y = If(c) <then_branch = a () => (float[4] p) { p = Mul(x, s) },
                       else_branch = b () => (float[4] q) { q = Identity(x) }>
        }
    """)
    tensor = model.graph.node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "0", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    onnx.save(model, tmp_path / "model.onnx")
    result = optimize_file(tmp_path / "model.onnx", tmp_path / "out.onnx", opaque_weights="missing", strict=True)
    assert "Add" in result.after.ops
    assert result.unread.files == ("weights.bin",)
    assert PassManager(opaque_weights="missing").verification(tmp_path / "model.onnx", result).ok


def test_a_model_of_onnx_ir_keeps_its_references(tmp_path: Path) -> None:
    path = saved(tmp_path)
    given = onnx_ir.load(path)
    (tmp_path / "weights.bin").rename(tmp_path / "aside")
    result = graphopt.optimize(given, opaque_weights="missing")
    assert len(result.graph) == 3
    (tmp_path / "aside").rename(tmp_path / "weights.bin")
    onnx_ir.save(result, tmp_path / "out.onnx")
    assert compare(path, tmp_path / "out.onnx").ok


@pytest.mark.parametrize("key", ["ts/mobilenetv2_100", "ts/bert_opset12", "dynamo_raw/poolformer_s12"])
@pytest.mark.parametrize("level", ["basic", "all"])
def test_real_networks_compute_the_same_with_any_weights(key: str, level: str) -> None:
    recipes = read_skeleton(FOLDER / f"{key}.onnx.gz")  # references to a file that nobody has
    result = PassManager(level, opaque_weights="missing", strict=True).run(recipes)
    assert result.unread.tensors > 30
    assert result.after.nodes < result.before.nodes
    assert compare(load_skeleton(key), refill(result.model), sets=("ordinary",)).ok


def test_the_command_has_it_too(tmp_path: Path, run: Run) -> None:
    path = saved(tmp_path)
    (tmp_path / "weights.bin").unlink()
    assert run("optimize", path, tmp_path / "out.onnx").exit_code == 3
    done = run("optimize", path, tmp_path / "out.onnx", "--opaque-weights", "missing", "--verify", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["unread"]["files"] == ["weights.bin"]
    shutil.copy(path, tmp_path / "again.onnx")
    told = run("optimize", path, tmp_path / "out.onnx", "--opaque-weights", "missing")
    assert "left unread" in told.stdout.replace("\n", " ")
    assert run("optimize", path, tmp_path / "out.onnx", "--opaque-weights", "some").exit_code == 2
    converted = run("convert", path, tmp_path / "old.onnx", "--opset", "13", "--opaque-weights", "missing", "--verify")
    assert converted.exit_code == 0, converted.stderr
    assert set(places(tmp_path / "old.onnx")) == {"w", "one", "zero"}


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="expected missing or all, found 'none'"):
        PassManager(opaque_weights="none")
