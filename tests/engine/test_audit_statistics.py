"""The statistics behind verdicts, and what the audit says of a file."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.audit.bench import Bench, Job, largest_error
from graphopt.audit.columns import count, spread
from graphopt.audit.feeds import timing_sizes
from graphopt.audit.inspection import check, losses
from graphopt.audit.statistics import Spread, speedups
from graphopt.errors import UsageError
from graphopt.verify.interface import sizes_from_shapes


def tiny(op: str = "Relu") -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["x"], ["a"], name="same"), helper.make_node(op, ["a"], ["y"], name="work")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "tiny", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


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
    [
        ([1.02] * 20, "tie"),
        ([3.0], "tie"),
        ([3.0, 3.1], "faster"),
        ([1.2] * 20, "faster"),
        ([0.8] * 20, "slower"),
        ([0.5, 1.1, 1.2, 1.3, 2.0] * 3, "tie"),
    ],
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
    assert largest_error([[np.ones(2)]], [[np.ones(2), np.ones(3)]])[0] == float("inf")
    assert largest_error([np.array([1 << 60])], [np.array([(1 << 60) + 1])])[0] == 1
    assert largest_error([np.array(["a"])], [np.array(["a"])]) == (0.0, 0.0)


def test_a_single_round_has_no_interval() -> None:
    """It is no interval of no width."""
    assert spread(Spread.of([2.0])) == "2 ms"
    assert spread(Spread.of([2.0, 2.0])) == "2 ms ±0%"


def test_counts_round_into_the_next_unit() -> None:
    assert [count(each) for each in (999, 1000, 999_499, 999_600, 10**9 - 1, 10**12)] == [
        "999", "1k", "999k", "1M", "1G", "1,000G",
    ]  # fmt: skip


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
    before, after = tiny(), tiny()
    before.graph.node[1].doc_string = "forward(), line 7"
    after.doc_string = "a new remark makes up for nothing"
    assert str(losses(before, after)) == "1 doc string"


def test_checker_is_quoted(tmp_path: Path) -> None:
    model = tiny()
    model.graph.node[1].input[0] = "nowhere"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert "nowhere" in check(path) or "topolog" in check(path)


def test_contents(tmp_path: Path) -> None:
    from graphopt.audit.inspection import contents

    model = tiny()
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    found = contents(path)
    assert (found.nodes, found.parameters, found.ops) == (2, 6, {"Identity": 1, "Relu": 1})
    assert found.file_bytes == path.stat().st_size


def test_a_run_that_is_interrupted_does_not_shorten_the_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([40.0, 0.4, 0.2, 9.0, 0.3])
    monkeypatch.setattr(Bench, "_time", lambda self, session, runs: next(times))
    assert Bench(Job([], "", {}))._burst(None) == 40
