"""The page of field reports: its commands exist with their options, and they run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import onnx
import pytest

from benchmarks.skeleton import load_skeleton
from graphopt.cli.app import COMMANDS
from tests.cli.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "field-reports.md"
SMALLER = {  # the page measures for minutes; whether a command works shows in seconds
    "profile": ["--rounds", "2", "--budget", "0.3", "--top", "1", "--no-graphopt"],
    "audit": ["--budget", "0.3", "--level", "basic"],
    "demo": [],
}
MODELS = {"crnn.onnx": "ts/crnn", "resnet50.onnx": "ts/resnet50", "landmarks.onnx": "ts/mobilenetv2_landmarks"}


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ graphopt ")]
    return [shlex.split(line)[1:] for line in lines]


def scripts() -> dict[str, str]:
    """The Python blocks by the name of the file that the text before them gives."""
    found = re.findall(r"`(\w+\.py)`[^`]*\n\n```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return dict(found)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_exist_with_their_options(words: list[str]) -> None:
    assert COMMANDS[words[0]].parse(words[1:])


def test_each_question_has_one_command_and_its_output() -> None:
    questions = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert len(questions) == 5
    for question in questions:
        answers = re.findall(r"^\$ graphopt (?:profile|audit) .*\n(?:.+\n){3,}", question, re.MULTILINE)
        assert len(answers) == 1, question.partition("\n")[0]


@pytest.mark.slow
def test_commands_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for file, key in MODELS.items():
        onnx.save(load_skeleton(key), tmp_path / file)
    for name, text in scripts().items():
        (tmp_path / name).write_text(text)
        exec(compile(text, name, "exec"), {})
    for words in commands():
        result = run(*words, *SMALLER[words[0]])
        assert result.exit_code == 0, f"{words}: {result.output[-500:]}"
        assert result.output
