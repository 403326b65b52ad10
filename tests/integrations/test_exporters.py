"""What exporters write, optimized as docs/how-to/exporters.md says: its examples run with the real packages."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphopt import compat, demo
from graphopt.errors import UsageError
from graphopt.verify import compare, sample_inputs
from tests.cli.conftest import small_model

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "exporters.md"
_BLOCK = re.compile(r'^```python title="([^"]*)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
BLOCKS = {title.split()[0]: code for title, code in _BLOCK.findall(PAGE.read_text())}


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, nothing fetched, and no simplifier replaced afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_OFFLINE", "YOLO_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("YOLO_AUTOINSTALL", "false")
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in compat.NAMES:
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
        if sys.modules[name] is None:
            monkeypatch.delitem(sys.modules, name)


def example(*needed: str) -> dict[str, Any]:
    """What an example of the page leaves, named by its first package; skipped where one is not installed."""
    for package in needed:
        try:
            importlib.import_module(package)
        except ImportError:
            pytest.skip(f"{package} is not installed: the integrations job of CI has it")
    (code,) = [code for title, code in BLOCKS.items() if title.lower() == needed[0].lower()]
    left: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), left)
    return left


@pytest.mark.filterwarnings("ignore")
def test_torch() -> None:
    left = example("torch", "onnxscript")
    assert left["before"] > len(left["program"].model.graph) == 2
    (found,) = left["program"](left["torch"].ones(1, 3, 16, 16))
    expected = left["network"](left["torch"].ones(1, 3, 16, 16)).detach().numpy()
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_tf2onnx() -> None:
    left = example("tf2onnx", "tensorflow")
    assert len(left["model"].graph.node) < len(left["before"].graph.node)
    assert compare(left["before"], "model.onnx").ok
    feed = sample_inputs(left["model"])
    from graphopt.system.sessions import open_session

    (found,) = open_session(left["model"]).run(None, feed)
    np.testing.assert_allclose(found, left["network"](feed["image"]).numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_keras() -> None:
    result = example("keras", "tensorflow")["result"]
    assert result.after.nodes < result.before.nodes
    assert result.verification.ok


@pytest.mark.filterwarnings("ignore")
def test_skl2onnx() -> None:
    left = example("skl2onnx")
    assert compare(left["before"], left["model"]).ok


@pytest.mark.filterwarnings("ignore")
def test_optimum() -> None:
    left = example("optimum", "optimum.onnxruntime", "transformers")
    assert left["result"].after.nodes < left["result"].before.nodes
    import torch

    given = {"input_ids": torch.arange(8)[None], "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    found, expected = left["model"](**given).logits, left["network"](**given).logits
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_ultralytics(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "graphopt"):
        left = example("ultralytics", "onnxslim")
    assert "nodes," in caplog.text  # it was graphopt that the exporter called
    model = onnx.load(left["path"])
    assert {"names", "imgsz", "task"} <= {entry.key for entry in model.metadata_props}
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.node) < 250
    os.rename(left["path"], "simplified.onnx")
    left["YOLO"]("yolov8n.yaml").export(format="onnx", imgsz=64, opset=17, simplify=False, device="cpu")
    assert len(onnx.load(left["path"]).graph.node) > len(model.graph.node)


@pytest.mark.filterwarnings("ignore")
def test_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: the integrations job of CI has it")
    onnx.save(demo.conv_maxpool(), tmp_path / "model.onnx")
    left = example("openvino")
    feed = sample_inputs(tmp_path / "model.onnx")
    raw = left["core"].compile_model(left["core"].read_model(str(tmp_path / "model.onnx")), "CPU")
    (expected,), (found,) = raw(feed).values(), left["compiled"](feed).values()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize(
    ("name", "call"), [("onnxslim", "slim"), ("onnxsim", "simplify"), ("onnxoptimizer", "optimize")]
)
def test_an_exporter_that_imports_a_simplifier_gets_graphopt(name: str, call: str) -> None:
    compat.stand_in(name)
    module = importlib.import_module(name)
    assert module.__name__ == f"graphopt.compat.{name}"
    assert re.fullmatch(r"\d+\.\d+\.\d+", module.__version__)
    made = getattr(module, call)(small_model())
    model = made[0] if isinstance(made, tuple) else made
    assert len(model.graph.node) == 2


def test_all_stand_in_where_none_is_named() -> None:
    compat.stand_in()
    assert all(sys.modules[name].__name__ == f"graphopt.compat.{name}" for name in compat.NAMES)
    with pytest.raises(UsageError, match="no counterpart of 'onnx'"):
        compat.stand_in("onnx")


def test_each_example_states_versions() -> None:
    titles = [title for title, _ in _BLOCK.findall(PAGE.read_text())]
    assert len(titles) == 7
    assert all(re.search(r"\d+\.\d+\.\d+", title) for title in titles)
    assert all(len(code.splitlines()) <= 13 for code in BLOCKS.values())
