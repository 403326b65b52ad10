"""Adapters: a peer may crash, hang, eat memory or write rubbish, and each of these is a result, not an end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import peers, verify
from graphopt.audit.equivalents import equivalent_passes
from graphopt.errors import UsageError
from graphopt.peers import worker
from graphopt.peers.reasons import BY_PEER
from graphopt.pipeline import registry
from tests.engine.misbehaving import Misbehaving

NAMES = [p.name for p in peers.all_peers()]
INSTALLED = [p.name for p in peers.available_peers()]
ONE_PASS = [  # a pass of each peer that folds BatchNormalization into Conv, and one that it must not run along
    ("onnxoptimizer", "fuse_bn_into_conv"),
    ("onnxsim", "fuse_bn_into_conv"),
    ("ort-basic", "ConvBNFusion"),
    ("ort-all", "ConvBNFusion"),
    ("onnxslim", "FusionConvBN"),
    ("onnxscript", "FuseBatchNormIntoConv"),
]


def conv_bn_model() -> onnx.ModelProto:
    """Identity, Conv, BatchNormalization, Relu, Relu: work for several passes."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((4, 3, 3, 3)),
        "scale": rng.uniform(0.5, 1.5, 4),
        "shift": rng.standard_normal(4),
        "mean": rng.standard_normal(4),
        "var": rng.uniform(0.5, 1.5, 4),
    }
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Conv", ["i", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


def ops(path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.onnx"
    onnx.save(conv_bn_model(), path)
    return path


# -- what goes wrong (test_processes.py has peers that mean it)


WAYS_TO_DIE = [
    ("import", "crashed", r"^SIGSEGV \(import\)$"),
    ("segfault", "crashed", r"^SIGSEGV \(work\)$"),
    ("assertion", "crashed", r"^SIGABRT \(work\): x\.h:1: Assertion `ok` failed\.$"),
    ("exit three", "crashed", r"^exit code 3 \(work\)$"),
    ("sleep", "timeout", r"^stopped after 2 s \(\w+\)$"),
    ("unloadable", "invalid", r"^loading the output ended with SIGSEGV$"),
    ("raises", "failed", r"^KeyError: 'no such value'$"),
    ("lazy", "failed", r"^wrote no output$"),
]


@pytest.mark.parametrize("way", WAYS_TO_DIE)
def test_every_way_to_die_is_a_row(monkeypatch, tmp_path, source, way):
    code, status, message = way
    misbehave(monkeypatch)
    result = Misbehaving(code).optimize_file(source, tmp_path / "out.onnx", timeout=2 if status == "timeout" else 60)
    assert result.status == status
    assert re.search(message, result.message), result.message
    assert not result.ok
    assert result.output is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx"], "nothing is left behind"
    assert "\n" not in result.message


def misbehave(monkeypatch) -> None:
    """Let children find the peers that misbehave."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


def test_the_limits_end_with_the_work(monkeypatch, tmp_path, source):
    misbehave(monkeypatch)
    result = Misbehaving("slow to load").optimize_file(source, tmp_path / "out.onnx", timeout=2)
    assert result.ok, "not stopped"


def work(act, tmp_path, source, monkeypatch) -> dict:
    peer = Misbehaving("act")
    peer.optimize = act
    told = {}
    monkeypatch.setattr(worker, "tell", lambda **message: told.update(message))
    worker.work(peer, str(source), str(tmp_path / "out.onnx"), None, True)
    return told


def test_an_output_that_does_not_load_is_invalid(monkeypatch, tmp_path, source):
    def spoil(src, dst):
        model = onnx.load(src)
        model.graph.node[1].input[0] = "nowhere"
        onnx.save(model, dst)

    record = work(spoil, tmp_path, source, monkeypatch)
    assert record["status"] == "invalid"
    assert "nowhere" in record["message"]


def test_an_output_that_is_no_model_is_invalid(monkeypatch, tmp_path, source):
    assert work(lambda _, dst: Path(dst).write_bytes(b"rubbish"), tmp_path, source, monkeypatch)["status"] == "invalid"


def test_a_model_that_onnxruntime_cannot_load_either_way_is_left_to_the_checker(monkeypatch, tmp_path):
    model = conv_bn_model()
    model.graph.node.append(helper.make_node("Foo", ["y"], ["z"], domain="my.own"))
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    path = tmp_path / "in.onnx"
    onnx.save(model, path)
    assert work(lambda src, dst: onnx.save(onnx.load(src), dst), tmp_path, path, monkeypatch)["status"] == "ok"


def test_an_unreadable_input_is_a_failure(tmp_path):
    path = tmp_path / "in.onnx"
    path.write_bytes(b"\x08\x09:\x05ab")
    result = peers.by_name("onnxoptimizer").optimize_file(path, tmp_path / "out.onnx")
    assert result.status == "failed"
    assert result.message


def test_a_real_crash_of_a_peer(tmp_path):
    """onnxoptimizer 0.4.2 reads a null pointer when a branch hands out an initializer."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x) => (float[3] y) <bool c = {1}> {
          y = If<then_branch = t () => (float[3] k) <float[3] k = {1.0, 2.0, 3.0}> {}, else_branch = e () => (float[3] v) { v = Abs(u) }>(c)
        }"""
    )
    path = tmp_path / "in.onnx"
    onnx.save(model, path)
    peer = peers.by_name("onnxoptimizer")
    result = peer.run_pass(path, tmp_path / "out.onnx", "eliminate_if_with_const_cond")
    if peer.version == "0.4.2":
        assert result.status == "crashed"
        assert result.message.startswith("SIG")


# -- what is refused at once


def test_an_unknown_peer_is_a_usage_error_that_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"unknown peer 'onnxsimplifier' \(did you mean onnxsim\?\)") as caught:
        peers.by_name("onnxsimplifier")
    assert all(name in str(caught.value) for name in NAMES)


def test_an_unknown_pass_is_a_usage_error(tmp_path, source):
    with pytest.raises(UsageError, match="did you mean eliminate_identity"):
        peers.by_name("onnxoptimizer").run_pass(source, tmp_path / "out.onnx", "eliminate_identities")
    with pytest.raises(UsageError, match="has no pass 'NchwcTransformer'"):
        peers.by_name("ort-basic").run_pass(source, tmp_path / "out.onnx", "NchwcTransformer")


def test_the_input_is_never_overwritten(source):
    before = source.read_bytes()
    with pytest.raises(UsageError, match="another file"):
        peers.by_name("onnxsim").optimize_file(source, source)
    assert source.read_bytes() == before


def test_a_peer_that_is_not_installed(monkeypatch, tmp_path, source):
    peer = peers.by_name("onnxslim")
    monkeypatch.setattr(type(peer), "distribution", "no-such-distribution")
    assert peer.version is None
    assert not peer.available()
    assert peer not in peers.available_peers()
    result = peer.optimize_file(source, tmp_path / "out.onnx")
    assert result.status == "failed"
    assert "not installed (pip install no-such-distribution)" in result.message


def test_nothing_imports_a_peer():
    code = (
        "import sys; from graphopt import peers; "
        "[(p.version, p.available(), repr(p)) for p in peers.all_peers()]; "
        "bad = {'onnxoptimizer', 'onnxsim', 'onnxruntime', 'onnxslim', 'onnxscript', 'onnx_ir'} & set(sys.modules); "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- what works


@pytest.mark.parametrize("name", INSTALLED)
def test_a_peer_optimizes_a_file_with_external_data(name, tmp_path):
    source = tmp_path / "in.onnx"
    onnx.save(conv_bn_model(), source, save_as_external_data=True, location="in.bin", size_threshold=0)
    result = peers.by_name(name).optimize_file(source, tmp_path / "out.onnx", timeout=60, memory_limit=2 << 30)
    assert result.status == "ok", result.message
    assert result.output == tmp_path / "out.onnx"
    assert result.version
    assert 0 < result.seconds < 60
    assert 0 < result.import_seconds < 60
    assert 20 << 20 < result.peak_memory_bytes < 2 << 30
    assert verify.compare(source, result.output).ok
    assert json.loads(json.dumps(result.to_dict()))["status"] == "ok"
    if name != "ort-transformers":
        assert "BatchNormalization" not in ops(result.output)


@pytest.mark.parametrize(("name", "pass_name"), [pair for pair in ONE_PASS if pair[0] in INSTALLED])
def test_one_pass_alone(name, pass_name, tmp_path, source):
    result = peers.by_name(name).run_pass(source, tmp_path / "out.onnx", pass_name)
    assert result.status == "ok", result.message
    assert result.pass_name == pass_name
    found = ops(result.output)
    assert "BatchNormalization" not in found
    assert (found["Identity"], found["Relu"]) == (1, 2), "nothing else was done"
    assert verify.compare(source, result.output).ok


@pytest.mark.parametrize("name", ["onnxoptimizer", "onnxsim", "ort-all"])
def test_no_pass_at_all(name, tmp_path, source):
    result = peers.by_name(name).run_pass(source, tmp_path / "out.onnx", peers.NOTHING)
    assert result.status == "ok", result.message
    assert ops(result.output) == ops(source)


def test_stale_outputs_are_replaced(tmp_path, source):
    (tmp_path / "out.onnx").write_bytes(b"old")
    (tmp_path / "out.onnx.data").write_bytes(b"old")
    result = peers.by_name("ort-basic").optimize_file(source, tmp_path / "out.onnx")
    assert result.files == (tmp_path / "out.onnx",)
    assert not (tmp_path / "out.onnx.data").exists()
    assert onnx.load(tmp_path / "out.onnx").graph.node


def test_a_failure_leaves_what_was_there(monkeypatch, tmp_path, source):
    (tmp_path / "out.onnx").write_bytes(b"old")
    misbehave(monkeypatch)
    assert Misbehaving("assertion").optimize_file(source, tmp_path / "out.onnx").status == "crashed"
    assert (tmp_path / "out.onnx").read_bytes() == b"old"


def test_data_files_of_any_name_come_along(monkeypatch, tmp_path, source):
    misbehave(monkeypatch)
    result = Misbehaving("data").optimize_file(source, tmp_path / "out.onnx")
    assert result.files == (tmp_path / "out.onnx", tmp_path / "some-uuid")
    assert all(path.exists() for path in result.files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "out.onnx", "some-uuid"]


def test_the_folder_of_the_output_must_exist(tmp_path, source):
    with pytest.raises(UsageError, match="does not exist"):
        peers.by_name("onnxsim").optimize_file(source, tmp_path / "nowhere" / "out.onnx")


# -- names


def test_onnxoptimizers_passes_have_the_same_name_here():
    table = equivalent_passes()
    for theirs in peers.by_name("onnxoptimizer").passes():
        ours = table.get(("onnxoptimizer", theirs), ())
        assert ours[:1] == ((theirs,) if theirs not in BY_PEER["onnxoptimizer"] else ())


def test_names_are_in_the_manner_of_onnxoptimizer():
    manner = re.compile(r"(eliminate|fuse|fold|convert|extract|rewrite|move|inline|adjust|replace|set)_\w+")
    assert [name for name in registry().names() if not manner.fullmatch(name)] == []


def test_the_levels_of_onnxruntime_contain_each_other():
    basic, extended, layout, everything = (
        set(peers.by_name(f"ort-{level}").passes()) for level in ("basic", "extended", "layout", "all")
    )
    assert basic < extended < layout < everything
    assert "ConvBNFusion" in basic
    assert "NchwcTransformer" in layout - extended
