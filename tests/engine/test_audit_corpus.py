"""Many models: parallel, resumable, and a bad one costs only itself. And the statistics behind verdicts."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.audit.bench import largest_error
from graphopt.audit.corpus import Corpus, audit_corpus
from graphopt.audit.feeds import sizes_from_shapes, timing_sizes
from graphopt.audit.inspection import check, losses
from graphopt.audit.statistics import Spread, speedups
from graphopt.audit.turns import Turns
from graphopt.errors import UsageError

QUICK = {"levels": ("basic",), "against": (), "rounds": 2, "starts": 1}


def tiny(op: str = "Relu") -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["x"], ["a"], name="same"), helper.make_node(op, ["a"], ["y"], name="work")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "tiny", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    for name, op in (("a", "Relu"), ("b", "Sigmoid")):
        (models / name).mkdir(parents=True)
        onnx.save(tiny(op), models / name / "model.onnx")
    (models / "bad.onnx").write_bytes(b"bad")
    return models


def test_a_corpus_is_audited_once(folder: Path, tmp_path: Path) -> None:
    files = sorted(folder.rglob("*.onnx"))
    store = tmp_path / "store"
    found = audit_corpus(files, store=store, jobs=2, **QUICK)
    assert list(found.audits) == ["a/model.onnx", "b/model.onnx"]
    assert "no ONNX model" in found.failures["models/bad.onnx"]
    assert found.ok
    own = next(s for s in found.standings() if s.name == "graphopt basic")
    assert own.models == 2
    assert own.nodes == pytest.approx(0.5)
    assert len(list(store.glob("*.json"))) == 2
    again = audit_corpus(files, store=store, **QUICK)
    assert again.reused == 2
    assert again.audits == found.audits
    (folder / "a" / "model.onnx").write_bytes(tiny("Tanh").SerializeToString())
    assert audit_corpus(files, store=store, **QUICK).reused == 1
    assert "a/model.onnx" in again.to_markdown()
    json.dumps(again.to_dict())


def test_wrong_jobs() -> None:
    with pytest.raises(UsageError, match="jobs"):
        audit_corpus([], jobs=0)
    assert audit_corpus([]).audits == {}


def test_wrong_results_and_crashes_are_told_apart() -> None:
    def row(name: str, **changes) -> dict:
        plain = {"seconds": 1.0, "status": "ok", "verification": "close", "message": "", "contents": {"nodes": 5}}
        return {"name": name, "speedup": {"1": {"median": 2.0, "verdict": "faster"}}, **plain, **changes}

    audits = {
        "m": {"threads": [1], "rows": [row("raw"), row("x"), row("y", status="crashed", message="SIGSEGV")]},
        "n": {"threads": [1], "rows": [row("raw"), row("x", verification="mismatch"), row("y")]},
    }
    standings = {s.name: s for s in Corpus(audits).standings()}
    assert standings["x"].wrong == ["n"]
    assert standings["x"].speedup == pytest.approx(2.0)
    assert standings["y"].failures == {"m": "crashed: SIGSEGV"}
    assert standings["y"].models == 1


def test_median_interval_covers_the_median() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(300):
        spread = Spread.of([rng.lognormvariate(0, 0.3) for _ in range(21)])
        assert spread.low <= spread.median <= spread.high
        covered += spread.low <= 1.0 <= spread.high
    assert covered >= 0.97 * 300


@pytest.mark.parametrize(
    ("sample", "verdict"),
    [([1.02] * 20, "tie"), ([1.2] * 20, "faster"), ([0.8] * 20, "slower"), ([0.5, 1.1, 1.2, 1.3, 2.0] * 3, "tie")],
)
def test_verdicts_need_evidence(sample: list[float], verdict: str) -> None:
    assert Spread.of(sample).verdict() == verdict


def test_equal_variants_are_mostly_ties() -> None:
    rng = random.Random(2)
    ties = 0
    for _ in range(200):
        base, own = ([rng.lognormvariate(0, 0.2) for _ in range(31)] for _ in "ab")
        ties += speedups(base, own).verdict() == "tie"
    assert ties >= 190


def test_errors_tell_nan_and_shape_apart() -> None:
    a = [np.array([1.0, np.nan, np.inf])]
    assert largest_error(a, [np.array([1.5, np.nan, np.inf])]) == (0.5, 0.5)
    assert largest_error(a, [np.array([1.0, 0.0, np.inf])])[0] == float("inf")
    assert largest_error(a, [np.array([1.0])])[0] == float("inf")
    assert largest_error([np.array(["a"])], [np.array(["a"])]) == (0.0, 0.0)


def test_sizes_of_symbolic_dimensions() -> None:
    model = tiny()
    assert next(timing_sizes(model)) == {"n": 1}
    assert sizes_from_shapes(model, {"x": (4, 8)}) == {"n": 4}
    with pytest.raises(UsageError, match="axis 1"):
        sizes_from_shapes(model, {"x": (4, 9)})


def test_losses_are_told() -> None:
    before, after = tiny(), tiny()
    before.metadata_props.add(key="author", value="me")
    before.doc_string = "about"
    before.graph.node[1].metadata_props.add(key="from", value="torch")
    after.graph.output[0].name = after.graph.node[1].output[0] = "z"
    after.graph.node[1].name = ""
    found = losses(before, after)
    assert any("'y' is missing" in text for text in found.interface)
    assert (found.metadata, found.doc_strings, found.node_names) == (1, 1, 1)
    assert str(losses(tiny(), tiny())) == ""


def test_checker_is_quoted(tmp_path: Path) -> None:
    model = tiny()
    model.graph.node[1].input[0] = "nowhere"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert "nowhere" in check(path) or "topolog" in check(path)


def test_timing_waits_for_workers() -> None:
    turns = Turns()
    events: list[str] = []

    def work() -> None:
        with turns.working():
            events.append("working")
            time.sleep(0.3)
            events.append("worked")

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    with turns.timing():
        events.append("timed")
    thread.join()
    assert events == ["working", "worked", "timed"]


def test_contents(tmp_path: Path) -> None:
    from graphopt.audit.inspection import contents

    model = tiny()
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    found = contents(path)
    assert (found.nodes, found.parameters, found.ops) == (2, 6, {"Identity": 1, "Relu": 1})
    assert found.file_bytes == path.stat().st_size
