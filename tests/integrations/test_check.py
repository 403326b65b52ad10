"""`graphopt check`: what fails a build, and what it leaves for the build's page."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest

from graphopt.audit.checking import Check, CheckedItem, FailOn, _slower
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


def test_of_several_models_one_that_cannot_be_read_fails_alone(run: Run, model_file: Path, tmp_path: Path) -> None:
    folder, junit = tmp_path / "models", tmp_path / "junit.xml"
    folder.mkdir()
    (folder / "a.onnx").write_bytes(b"no model")
    (folder / "b.onnx").write_bytes(model_file.read_bytes())
    done = run("check", folder, "--junit", junit, "--json")
    assert done.exit_code == 1, done.stderr
    found = {Path(each["model"]).name: each["ok"] for each in json.loads(done.stdout)["findings"]}
    assert found == {"a.onnx": False, "b.onnx": True}
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert run("check", folder / "a.onnx").exit_code == 3


def test_a_baseline_without_times_says_nothing_of_speed(run: Run, model_file: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    assert run("check", model_file, "--save", baseline).exit_code == 0
    slower = ("--fail-on", "slower=900%", "--budget", "0.2")
    done = run("check", model_file, "--baseline", baseline, *slower)
    assert done.exit_code == 2
    assert "the baseline has no times of" in done.stderr
    assert run("check", model_file, *slower, "--save", baseline).exit_code == 0
    done = run("check", model_file, "--baseline", baseline, *slower)
    assert "speed-up over the runtime alone" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fail-on", "slower=900%", "--threads", "1,2"), "on 2 thread(s)"),
        (("--fail-on", "nodes", "--level", "extended"), "no graphopt extended of"),
    ],
)
def test_a_baseline_of_other_conditions_is_refused(
    run: Run, model_file: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    """Nothing would be judged, and the build would pass."""
    baseline = tmp_path / "baseline.json"
    measured = ("--rounds", "2", "--budget", "0.1")
    assert run("check", model_file, "--fail-on", "slower=900%", *measured, "--save", baseline).exit_code == 0
    done = run("check", model_file, "--baseline", baseline, *options, *measured)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


def test_what_has_no_past_is_judged_by_numerics(run: Run, model_file: Path, tmp_path: Path) -> None:
    done = run("check", model_file, "--fail-on", "nodes", "--save", tmp_path / "baseline.json", "--json")
    assert [each["kind"] for each in json.loads(done.stdout)["findings"]] == ["numerics"]


def test_a_model_that_the_baseline_does_not_know_is_noted(run: Run, model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text('{"schema": 1, "models": {}}')
    done = run("check", model_file, "--baseline", tmp_path / "baseline.json", "--fail-on", "nodes,numerics")
    assert done.exit_code == 0
    assert "is not in the baseline" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"schema": 2, "models": {}}', '{"schema": 1}', '{"schema": 1, "models": {"model.onnx": 3}}',
        '{"schema": 1, "models": {"m": {"rows": [{"name": "graphopt basic"}]}}}',
        '{"schema": 1, "models": {"m": {"rows": [{"name": "a", "contents": {}, "speedup": {}}]}}}',
        '{"schema": 1, "models": {"m": {"rows": [{"name": "a", "contents": null, "speedup": {"1": 2.0}}]}}}',
    ],
)  # fmt: skip
def test_what_is_no_baseline(run: Run, model_file: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "baseline.json").write_text(text)
    assert run("check", model_file, "--baseline", tmp_path / "baseline.json").exit_code == 3


def test_conditions_are_read() -> None:
    assert FailOn.parse("slower=5%, nodes,numerics") == FailOn(True, True, False, 5.0)
    assert FailOn.parse("slower").slower == 3.0
    for text in ("faster", "nodes=3", "slower=much", "slower=nan%", "slower=inf", "slower=-1%", "", ","):
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


def test_a_junit_report_is_in_the_encoding_that_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "cp1252")
    text = Check([CheckedItem("möbel.onnx", "nodes", True, "2 -> 2")], {}, []).to_junit()
    assert ElementTree.fromstring(text.encode("utf-8"))[0].get("classname") == "möbel.onnx"


PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "continuous-integration.md").read_text()


@pytest.fixture
def repository(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a model and what it was, and the command on the path."""
    monkeypatch.chdir(tmp_path)
    onnx.save(small_model(), tmp_path / "model.onnx")
    assert run("check", "model.onnx", "--save", "baseline.json").exit_code == 0
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "graphopt").write_text(f'#!/bin/sh\nexec {sys.executable} -m graphopt "$@"\n')
    (tmp_path / "bin" / "graphopt").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("is_worse", [False, True])
def test_the_hook_of_the_page(run: Run, repository: Path, is_worse: bool) -> None:
    """What pre-commit does: the entry with the files whose names fit."""
    (block,) = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "hooks:" in block]
    entry = re.search(r"entry: (.*)", block)
    files = re.search(r"files: (.*)", block)
    assert entry is not None
    assert files is not None
    if is_worse:
        onnx.save(worse(), repository / "model.onnx")
    staged = [path.name for path in repository.iterdir() if re.search(files[1], path.name)]
    assert staged == ["model.onnx"]
    done = subprocess.run([*shlex.split(entry[1]), *staged], capture_output=True, text=True, check=False)
    assert done.returncode == (1 if is_worse else 0), done.stderr


@pytest.mark.parametrize("is_worse", [False, True])
def test_the_workflow_of_the_page(repository: Path, monkeypatch: pytest.MonkeyPatch, is_worse: bool) -> None:
    """Its steps as a runner takes them, but for those that check out and install."""
    (block,) = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "jobs:" in block]
    steps = [step for step in re.findall(r"- run: (.*)", block) if not step.startswith("pip install")]
    assert steps
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository / "summary.md"))
    if is_worse:
        onnx.save(worse(), repository / "model.onnx")
    codes = [subprocess.run(["sh", "-e", "-c", step], check=False).returncode for step in steps]
    assert codes == [1 if is_worse else 0]
    assert "### graphopt check: " in (repository / "summary.md").read_text()
    assert ElementTree.parse(repository / "graphopt.xml").getroot().get("failures") == ("2" if is_worse else "0")
