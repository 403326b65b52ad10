"""`graphopt check`: what fails a build, and what it leaves for the build's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest

from graphopt.audit.checking import CheckedItem, FailOn, _slower
from graphopt.audit.record import Row
from graphopt.audit.statistics import Spread
from graphopt.errors import UsageError
from tests.cli.conftest import Run, model_file, run, small_model

__all__ = ["model_file", "run"]


def worse() -> onnx.ModelProto:
    """The model with a node more that nothing removes."""
    model = small_model()
    model.graph.node[2].output[0] = "r"
    model.graph.node.append(onnx.helper.make_node("Sigmoid", ["r"], ["y"], name="more"))
    return model


def test_a_model_is_held_against_what_it_was(run: Run, model_file: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    assert run("check", model_file, "--save", baseline).exit_code == 0
    same = run("check", model_file, "--baseline", baseline, "--fail-on", "nodes,bytes,numerics")
    assert (same.exit_code, same.stdout.splitlines()[-1]) == (0, "all 3 checks passed")
    onnx.save(worse(), model_file)
    junit = tmp_path / "junit.xml"
    done = run("check", model_file, "--baseline", baseline, "--fail-on", "nodes,numerics", "--junit", junit, "--json")
    assert done.exit_code == 1
    found = {each["kind"]: (each["ok"], each["text"]) for each in json.loads(done.stdout)["findings"]}
    assert found == {"numerics": (True, "equal"), "nodes": (False, "2 -> 3")}
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure").get("message") for case in suite if len(case)] == ["2 -> 3"]  # type: ignore[union-attr]
    assert "| ❌ |" in run("check", model_file, "--baseline", baseline, "--fail-on", "nodes", "--markdown").stdout


def test_a_model_that_the_baseline_does_not_know_is_noted(run: Run, model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text('{"schema": 1, "models": {}}')
    done = run("check", model_file, "--baseline", tmp_path / "baseline.json", "--fail-on", "nodes,numerics")
    assert done.exit_code == 0
    assert "is not in the baseline" in " ".join(done.stdout.split())


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "models": {}}', '{"schema": 1}'])
def test_what_is_no_baseline(run: Run, model_file: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "baseline.json").write_text(text)
    assert run("check", model_file, "--baseline", tmp_path / "baseline.json").exit_code == 3


def test_conditions_are_read() -> None:
    assert FailOn.parse("slower=5%, nodes,numerics") == FailOn(True, True, False, 5.0)
    assert FailOn.parse("slower").slower == 3.0
    for text in ("faster", "nodes=3", "slower=much"):
        with pytest.raises(UsageError, match="--fail-on"):
            FailOn.parse(text)


@pytest.mark.parametrize(
    ("now", "ok"),
    [
        (Spread(1.50, 1.48, 1.52, 9), True),
        (Spread(1.47, 1.46, 1.48, 9), True),  # within three percent
        (Spread(1.30, 1.10, 1.50, 9), True),  # too noisy to tell
        (Spread(1.30, 1.28, 1.32, 9), False),
    ],
)
def test_only_what_is_surely_slower_fails(now: Spread, ok: bool) -> None:
    row = Row("graphopt basic", "graphopt", "all", speedup={1: now})
    past: dict[str, Any] = {"speedup": {"1": {"median": 1.5, "low": 1.49, "high": 1.51}}}
    finding = _slower("m", row, past, 3.0)
    assert [each.ok for each in finding] == [ok]
    assert isinstance(finding[0], CheckedItem)
