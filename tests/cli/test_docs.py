"""Every example in the documentation runs: Python blocks are executed, `graphopt` commands are called."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import graphopt
from graphopt import demo

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "viewer.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
PAGES = [ROOT / "README.md", *GUIDES]
"""The pages whose examples run, each in a folder of its own with a model in it."""


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text()
        found += [(page.name, b) for b in re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(demo.conv_maxpool(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("page", "block"), [pytest.param(*each, id=each[0]) for each in blocks("python")])
def test_python_examples_run(page: str, block: str) -> None:
    exec(compile(block, page, "exec"), {})


def commands(page: str) -> list[str]:
    lines = [line for name, block in blocks("console") if name == page for line in block.splitlines()]
    found = [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ graphopt")]
    return [command.replace("demo mobilenet_v3", "demo conv_maxpool") for command in found]  # which is much smaller


@pytest.mark.parametrize("page", ["README.md", "tutorial.md", "viewer.md", "continuous-integration.md"])
def test_commands_run(page: str, folder: Path) -> None:
    assert commands(page)
    for command in commands(page):
        words = [
            sys.executable,
            "-c",
            "import sys; from graphopt.cli import main; sys.exit(main())",
            *shlex.split(command)[1:],
        ]
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode in (0, 1) if " diff " in command else done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout or done.stderr, f"{command} prints nothing"


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(graphopt.__path__, "graphopt.")]
    return [name for name in found if not any(part in name for part in ("worker", "__main__", "integrations.olive"))]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_hold(name: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


@pytest.mark.parametrize("name", sorted(set(graphopt.__all__) - {"demo"}))
def test_every_public_name_is_documented(name: str) -> None:
    documented = getattr(graphopt, name).__doc__
    assert documented
    assert documented.strip()
