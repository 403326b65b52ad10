"""Many passes in one process: what is left after one of them crashes, hangs or raises."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import psutil
import pytest

from graphopt.audit import Limits
from graphopt.ir import Model
from graphopt.peers import NOTHING, by_name
from graphopt.peers.serving import PassServer
from tests.engine.misbehaving import Misbehaving
from tests.same import assert_same_bytes

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y)
{
  a = Identity (x)
  b = Relu (a)
  y = Identity (b)
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def test_memory_is_limited_by_itself() -> None:
    """A runaway peer must not take the machine with it, whoever started it."""
    with PassServer(by_name("onnxoptimizer")) as server:
        assert 0 < server.memory_limit <= psutil.virtual_memory().total // 2
    assert Limits().memory == server.memory_limit


def test_passes_share_a_process(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    with PassServer(by_name("onnxoptimizer")) as server:
        results = [server.run_pass(source, target, name) for name in (NOTHING, "fuse_bn_into_conv")]
        assert [node.op for node in Model.load(target).nodes()] == ["Identity", "Relu", "Identity"]
        results.append(server.run_pass(source, target, "eliminate_identity"))
        assert [node.op for node in Model.load(target).nodes()] == ["Relu"]
        assert server.starts == 1
    assert [result.status for result in results] == ["ok"] * 3
    assert results[2].output == target
    assert results[2].seconds is not None


def test_a_server_gives_what_single_runs_give(source: Path, tmp_path: Path) -> None:
    peer, alone, served = by_name("ort-all"), tmp_path / "alone.onnx", tmp_path / "served.onnx"
    assert peer.run_pass(source, alone, "EliminateIdentity", check=False).ok
    with PassServer(peer) as server:
        server.run_pass(source, served, "ConstantFolding")
        server.run_pass(source, served, "EliminateIdentity")
    assert_same_bytes(served.read_bytes(), alone.read_bytes())


@pytest.mark.parametrize(
    "case",
    [
        ("assertion", "crashed", "SIGABRT: x.h:1: Assertion `ok` failed.", 2),
        ("sleep", "timeout", "stopped after 3 s", 2),
        ("eat", "failed", "stopped: over the memory limit of 300 MiB", 2),
        ("raises", "failed", "KeyError: 'no such value'", 1),
        ("lazy", "failed", "wrote no output", 1),
        ("noise", "ok", "", 1),
    ],
)
def test_a_bad_pass_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path, case: tuple[str, str, str, int]
) -> None:
    name, status, message, starts = case
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    target = tmp_path / "out.onnx"
    with PassServer(Misbehaving(name), memory_limit=300 << 20) as server:
        assert server.run_pass(source, target, "good", timeout=60).ok
        bad = server.run_pass(source, target, name, timeout=3 if name == "sleep" else 60)
        assert (bad.status, bad.message) == (status, message)
        assert target.exists() == bad.ok, "an earlier result is not taken for this one's"
        assert server.run_pass(source, target, "good", timeout=60).ok
        assert server.starts == starts


@pytest.mark.skipif(not by_name("onnxscript").available(), reason="onnxscript is not installed")
def test_every_rule_of_onnxscript_runs_alone(tmp_path: Path) -> None:
    """Operands of operators that take any number of them do not change places, which those of others do."""
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <float a = {1}, float b = {2}> '
        "{m = Min (x, a) y = Min (m, b)}"
    )
    onnx.save(made, tmp_path / "in.onnx")
    with PassServer(by_name("onnxscript")) as server:
        names = server.peer.passes()
        ran = {name: server.run_pass(tmp_path / "in.onnx", tmp_path / "out.onnx", name, timeout=60) for name in names}
        assert {name: result.message for name, result in ran.items() if not result.ok} == {}
        server.run_pass(tmp_path / "in.onnx", tmp_path / "out.onnx", "FuseSuccessiveMin", timeout=60)
        assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["Min"]
        usual = server.peer.usual_passes()
    assert set(names) - set(usual) >= {"ConvAffineFusion", "MatMulAddToGemm"}
    assert {"FoldConstantsPass", "FuseSuccessiveMin", "mul_by_1_rule"} <= set(usual)
