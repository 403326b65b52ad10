"""Many passes in one process: what is left after one of them crashes, hangs or raises."""

from __future__ import annotations

from pathlib import Path

import onnx
import psutil
import pytest

from graphopt.audit.contestants import Limits
from graphopt.ir import Model
from graphopt.peers import NOTHING, by_name, serving
from graphopt.peers.serving import PassServer

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y)
{
  a = Identity (x)
  b = Relu (a)
  y = Identity (b)
}
"""

# Answers like a peer; some passes end it, one is slow, and it prints where answers go.
MISCHIEF = """
import os, sys, time, shutil
from graphopt.peers import server, serving

class Mischief:
    def load(self): pass
    def prepare(self, name): print("noise on standard output")
    def run_one(self, src, dst, name):
        if name == "crash":
            sys.stderr.write("x.cc:7: Assertion `graph` failed.\\n"); sys.stderr.flush(); os.abort()
        if name == "hang": time.sleep(60)
        if name == "grow":
            hoard = []
            while True: hoard.append(bytearray(os.urandom(1)) * (16 << 20))
        if name == "raise": raise KeyError("no such value")
        if name != "lazy": shutil.copy(src, dst)

server.by_name = lambda name: Mischief()
server.main(sys.argv[1])
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
    assert served.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    "case",
    [
        ("crash", "crashed", "SIGABRT: x.cc:7: Assertion `graph` failed.", 2),
        ("hang", "timeout", "stopped after 3 s", 2),
        ("grow", "failed", "stopped: over the memory limit of 512 MiB", 2),
        ("raise", "failed", "KeyError: 'no such value'", 1),
        ("lazy", "failed", "wrote no output", 1),
    ],
)
def test_a_bad_pass_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path, case: tuple[str, str, str, int]
) -> None:
    name, status, message, starts = case
    monkeypatch.setattr(serving, "SERVER", ("-c", MISCHIEF))
    target = tmp_path / "out.onnx"
    with PassServer(by_name("onnxoptimizer"), memory_limit=512 << 20) as server:
        assert server.run_pass(source, target, "good", timeout=60).ok
        bad = server.run_pass(source, target, name, timeout=3 if name == "hang" else 60)
        assert (bad.status, bad.message) == (status, message)
        assert not target.exists(), "an earlier result is not taken for this one's"
        assert server.run_pass(source, target, "good", timeout=60).ok
        assert server.starts == starts
