"""How models reach the oracle, where it runs, and what it does when that goes wrong."""

from __future__ import annotations

import itertools
import json
import os
import signal
from enum import IntEnum
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt import verify
from graphopt.errors import ModelError, UsageError
from graphopt.system.child import tell
from graphopt.system.machine import METADATA_KEY, Target, host
from graphopt.system.sessions import open_session
from graphopt.verify.runners import OrtRunner, ReferenceRunner
from graphopt.verify.source import Source
from tests.engine.verify_models import graph

# -- how models are given


def test_bytes_paths_and_external_data(tmp_path):
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), "w")
    m = graph("(float[N,64] x) => (float[N,64] y)", "y = MatMul(x, w)")
    m.graph.initializer.append(weight)
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.ModelProto.FromString(m.SerializeToString()),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    before = m.SerializeToString()
    assert verify.compare(m, path, numerics="exact").status == "equal"
    assert verify.compare(m.SerializeToString(), str(path), numerics="exact").status == "equal"
    assert m.SerializeToString() == before, "the caller's proto is left alone"
    raw = bytearray((tmp_path / "w.bin").read_bytes())
    raw[3] ^= 0x40
    (tmp_path / "w.bin").write_bytes(bytes(raw))
    assert verify.compare(m, path).status == "mismatch"


def test_blocks_of_another_machine_are_said_instead_of_compared():
    m = graph("(float[N,64] x) => (float[N,64] y)", "y = Relu(x)")
    other = onnx.ModelProto.FromString(m.SerializeToString())
    for target in ("avx2/nchwc8", "avx512/nchwc16", "neon/nchwc4"):
        if Target.parse(target).block == host().block:
            continue
        other.metadata_props.add(key=METADATA_KEY, value=target)
        report = verify.compare(m, other)
        assert report.status == "inconclusive"
        assert f"blocks of another size than this machine's, {host()}" in report.summary()
        del other.metadata_props[:]


def test_a_proto_too_large_for_one_message_goes_through_files(monkeypatch):
    m = graph("(float[N,64] x) => (float[N,64] y)", "y = MatMul(x, w)")
    m.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    source = verify.Source(m, "model")
    path = source._spill(m)
    assert len(path.read_bytes()) < 1000
    assert (path.parent / "model.data").stat().st_size == 64 * 64 * 4
    assert verify.compare(m, path, numerics="exact").status == "equal"
    source.close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not found"),
        (b"\x08\x09:\x05ab", "truncated"),
        (b"", "empty"),
        (b"\x18\x00\x00\x00ORTM\x00\x00", "own format"),
        (b"not a model at all", "truncated"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path, content, message):
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    with pytest.raises(ModelError, match=message) as caught:
        verify.compare(good, path)
    assert "\n" not in str(caught.value)


def test_bad_arguments():
    m = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    with pytest.raises(UsageError, match="unknown numerics level 'sloppy'"):
        verify.compare(m, m, numerics="sloppy")
    with pytest.raises(UsageError, match="unknown input set 'weird'"):
        verify.compare(m, m, sets=["weird"])
    with pytest.raises(ModelError, match="expected a ModelProto"):
        verify.compare(m, 3)  # type: ignore[arg-type]


def test_numerics_may_be_an_enumeration():
    class Numerics(IntEnum):
        EXACT = 0

    m = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    assert verify.compare(m, m, numerics=Numerics.EXACT).numerics == "exact"


def test_the_same_seed_gives_the_same_inputs():
    m = graph("(float[N,64] x, int32[N] i) => (float[N,64] y)", "y = Relu(x)")
    first, again, other = (verify.sample_inputs(m, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not np.array_equal(first["x"], other["x"])


def test_generated_floats_expose_errors():
    m = graph("(float[N,4096] x) => (float[N,4096] y)", "y = Relu(x)")
    x = verify.sample_inputs(m)["x"]
    assert (x < 0).any()
    assert (x > 4).any()
    assert (x == 0).any()
    assert len(np.unique(x)) < x.size, "ties"
    extreme = verify.sample_inputs(m, set_name="extreme")["x"]
    assert np.abs(extreme).max() > 1e3
    assert ((np.abs(extreme) < np.finfo(np.float32).tiny) & (extreme != 0)).any(), "denormals"
    assert np.signbit(extreme[extreme == 0]).any()
    assert np.isfinite(extreme).all()
    assert np.isinf(verify.sample_inputs(m, set_name="special")["x"]).any()


def test_sample_inputs_says_why_not():
    m = graph("(float[2,3] x) => (float[A,B] y)", "s = Constant<value_ints=[4,4]>() y = Reshape(x, s)")
    with pytest.raises(ModelError, match="runs on none of the generated inputs"):
        verify.sample_inputs(m)


def test_the_report_is_json():
    good, bad = (graph("(float[3] x) => (float[3] y)", f"y = {op}(x)") for op in ("Relu", "Neg"))
    text = json.dumps(verify.compare(good, bad).to_dict(), allow_nan=False)
    data = json.loads(text)
    assert data["status"] == "mismatch"
    assert data["ok"] is False
    assert data["outputs"][0]["name"] == "y"


# -- isolation


def test_isolated_gives_the_same_report():
    good, bad = (graph("(float[3] x) => (float[3] y)", f"y = {op}(x)") for op in ("Relu", "Neg"))
    here, there = verify.compare(good, bad), verify.compare(good, bad, isolate=True)
    assert there.status == "mismatch"
    assert [c.outputs for c in here.cases] == [c.outputs for c in there.cases]
    assert verify.compare(good, good, isolate=True, numerics="exact").status == "equal"


def test_a_time_limit_ends_a_long_run():
    forever = graph(
        "(float[3] x) => (float[3] y)",
        "n = Constant<value_int=9223372036854775807>() t = Constant<value = bool {1}>() "
        "y = Loop<body = b (int64 k, bool c, float[3] u) => (bool d, float[3] v) { d = Identity(c) v = Relu(u) }>"
        "(n, t, x)",
    )
    quick = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    report = verify.compare(quick, forever, timeout=3)
    assert report.status == "inconclusive"
    assert report.detail.startswith("stopped after 3 s while ")


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def die_with_the_result(*_: object) -> None:
    tell(stage="running the result on extreme inputs")
    die()


def test_a_crash_of_the_runtime_is_a_row(monkeypatch):
    from graphopt.verify import isolation

    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    for function in (die, die_with_the_result):
        monkeypatch.setattr(function, "__module__", "tests.engine.test_verify_running")
    monkeypatch.setattr(isolation, "_compare", die_with_the_result)
    report = verify.compare(good, good, isolate=True)
    assert report.status == "mismatch"
    assert report.detail == "crashed (SIGSEGV) while running the result on extreme inputs"
    monkeypatch.setattr(isolation, "_compare", die)
    assert verify.compare(good, good, isolate=True).status == "inconclusive", "the result is not to blame"


def test_errors_cross_the_process_boundary(tmp_path):
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    with pytest.raises(ModelError, match="not found"):
        verify.compare(good, tmp_path / "missing.onnx", isolate=True)


@pytest.mark.parametrize("hub", [False, True], ids=["data beside what the link leads to", "links to the data, too"])
def test_a_link_to_a_model_with_its_weights_in_a_file(tmp_path: Path, hub: bool) -> None:
    """The runtime looks for the data beside the name that it is given, whatever that leads to."""
    model = graph("(float[2] x) => (float[2] y)", "y = Add(x, w)")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2], np.float32), "w"))
    real, links = tmp_path / "real", tmp_path / "links"
    for folder in (real, links):
        folder.mkdir()
    name = "w.data" if not hub else "blob"
    onnx.save(model, real / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    (real / "w.data").rename(real / name)
    (links / "m.onnx").symlink_to(real / "m.onnx")
    if hub:
        (links / "w.data").symlink_to(real / name)
    assert verify.compare(links / "m.onnx", links / "m.onnx").ok
    source = Source(links / "m.onnx", "m")
    assert OrtRunner(source).run({"x": np.zeros(2, np.float32)})[0].tolist() == [1, 2]
    open_session(source.path())


def _weights_in_a_file(path: Path) -> Path:
    model = graph("(float[2] x) => (float[2] y)", "y = Add(x, w)")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2], np.float32), "w"))
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    return path


@pytest.mark.parametrize("how", ["link", "second name"])
def test_others_are_given_a_copy_where_the_weights_have_other_names(tmp_path: Path, how: str) -> None:
    path = _weights_in_a_file(tmp_path / "m.onnx")
    assert Source(path, "m").plain_path() == path
    (tmp_path / "w.data").rename(tmp_path / "blob")
    (Path.symlink_to if how == "link" else Path.hardlink_to)(tmp_path / "w.data", tmp_path / "blob")
    source = Source(path, "m")
    assert source.path() == path
    onnx.checker.check_model(source.plain_path())
    assert numpy_helper.to_array(source.full_proto().graph.initializer[0]).tolist() == [1, 2]
    source.close()


def test_a_link_out_of_the_folder_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = _weights_in_a_file(tmp_path / "sub" / "m.onnx")
    (tmp_path / "sub" / "w.data").rename(tmp_path / "blob")
    (tmp_path / "sub" / "w.data").symlink_to(tmp_path / "blob")
    assert Source(path, "m").plain_path() == path


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    path = _weights_in_a_file(tmp_path / "m.onnx").rename(folder / os.fsdecode(b"m\xfe.onnx"))
    (tmp_path / "w.data").rename(folder / "w.data")
    assert verify.compare(path, path).ok
    assert verify.compare(path, path, isolate=True).ok


def test_weights_in_a_file_count(tmp_path: Path) -> None:
    path = _weights_in_a_file(tmp_path / "m.onnx")
    assert Source(path, "m").weight_bytes() == path.stat().st_size + (tmp_path / "w.data").stat().st_size


def test_what_the_original_gives_otherwise_each_time_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels may leave memory as it is, and operators of other domains may draw numbers."""
    run, count = OrtRunner.run, itertools.count()

    def drawn(self: OrtRunner, feed: verify.Feed) -> list[np.ndarray]:
        unsteady, *others = run(self, feed)
        return [unsteady + next(count), *others]

    monkeypatch.setattr(OrtRunner, "run", drawn)
    signature = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y, float[4] z)'
    one, other = (
        onnx.parser.parse_model(f"{signature} {{ y = Relu (x) z = {kind} (x) }}") for kind in ("Neg", "Identity")
    )
    for numerics in ("exact", "rounding"):
        report = verify.compare(one, one, numerics=numerics)
        assert report.status == "equal"
        assert report.max_abs == 0.0
        assert "when it runs again" in report.outputs[0].detail
        assert verify.compare(one, other, numerics=numerics).status == "mismatch"


def test_a_model_without_outputs_is_inconclusive_and_says_why() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => () { }'
    report = verify.compare(*[onnx.parser.parse_model(text)] * 2)
    assert report.status == "inconclusive"
    assert report.detail == "the original has no outputs that could be compared"


# -- what onnx's evaluator computes otherwise than the standard says


@pytest.mark.parametrize("node", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(("axis", "fits"), [(", axis = 1", "[1,3,1]"), (", axis = -2", "[1,3,1]"), ("", "[1,1,3]")])
def test_operands_of_old_opsets_lie_along_their_axis(node: str, axis: str, fits: str) -> None:
    old = graph("(float[2,3,3] x, float[3] b) => (float[2,3,3] y)", f"y = {node} <broadcast = 1{axis}> (x, b)", opset=6)
    head = f"(float[2,3,3] x, float[3] b) => (float[2,3,3] y) <int64[3] s = {{{fits[1:-1]}}}>"
    new = graph(head, f"c = Reshape (b, s) y = {node} (x, c)", opset=13)
    assert verify.compare(old, new).status == "equal"
    other = head.replace(fits[1:-1], "1,1,3" if axis else "1,3,1")
    assert verify.compare(old, graph(other, f"c = Reshape (b, s) y = {node} (x, c)", opset=13)).status == "mismatch"


def test_the_shape_of_an_old_reshape_is_an_attribute() -> None:
    old = graph("(float[2,3,4] x) => (float[2,6,2] y)", "y = Reshape <shape = [0, -1, 2]> (x)", opset=4)
    head = "(float[2,3,4] x) => (float[2,6,2] y) <int64[3] n = {2,6,2}>"
    assert verify.compare(old, graph(head, "y = Reshape (x, n)", opset=13)).status == "equal"


def test_averages_of_old_opsets_leave_out_what_is_padded() -> None:
    node = "y = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], strides = [2,2]> (x)"
    old, new = (graph("(float[2,3,4,4] x) => (float[2,3,2,2] y)", node, opset=opset) for opset in (6, 13))
    assert verify.compare(old, new).ok


def test_slopes_of_old_opsets_are_of_channels() -> None:
    old = graph("(float[2,3,3,3] x, float[3] s) => (float[2,3,3,3] y)", "y = PRelu (x, s)", opset=6)
    head = "(float[2,3,3,3] x, float[3] s) => (float[2,3,3,3] y) <int64[3] n = {3,1,1}>"
    assert verify.compare(old, graph(head, "c = Reshape (s, n) y = PRelu (x, c)", opset=16)).status == "equal"


@pytest.mark.parametrize(
    "node",
    [
        "Softmax <axis = 1> (x)", "Softmax (x)", "LogSoftmax <axis = 2> (x)", "Hardmax <axis = -3> (x)",
        "BatchNormalization <epsilon = 0.01> (x, s, s, s, s)", "LRN <size = 3, alpha = 0.5> (x)",
        "GlobalMaxPool (x)",
    ],
)  # fmt: skip
def test_both_backends_agree_on_older_forms(node: str) -> None:
    old = graph("(float[2,5,3,4] x) => (float[a,b,c,d] y) <float[5] s = {1,2,3,4,5}>", f"y = {node}", opset=9)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 5, 3, 4)).astype(np.float32)}
    results = [runner(Source(old, "original")).run(feed)[0] for runner in (OrtRunner, ReferenceRunner)]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("node", ["BatchNormalization (x, s, s, s, s)", "Dropout (x)"])
def test_what_trains_is_not_judged(node: str) -> None:
    old = graph("(float[2,3,4] x) => (float[2,3,4] y) <float[3] s = {1,2,3}>", f"y = {node}", opset=6)
    assert verify.compare(old, old).status == "inconclusive"
