"""Workflows, lock file and bounds: pinned, minimal, and in step with what the project declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from graphopt import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BOUND = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?(?:>=([\d.]+))?")


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))  # type: ignore[misc]


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def bounds(*extras: str) -> dict[str, str]:
    declared = [*PROJECT["dependencies"], *(each for e in extras for each in PROJECT["optional-dependencies"][e])]
    found = [BOUND.match(each) for each in declared]
    return {each[1].replace("_", "-"): each[2] or "0" for each in found if each is not None and each[1] != "graphopt"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_may_only_read(workflow: Path) -> None:
    text = workflow.read_text()
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used)
    assert re.search(r"^permissions:\n  contents: read\n", text, re.MULTILINE)
    assert set(re.findall(r"^ +([\w-]+): write", text, re.MULTILINE)) <= {"id-token"}


def test_the_lock_file_satisfies_the_ranges() -> None:
    locked = pins("dev.lock")
    for name, least in bounds("tools", "ort", "peers", "dev").items():
        assert numbers(locked[name.lower()]) >= numbers(least), name


def test_the_oldest_versions_are_the_bounds() -> None:
    declared = bounds("tools", "ort", "peers")
    pinned = pins("oldest.txt")
    assert set(pinned) - set(declared) <= {"click", "pyarrow"}  # what comes with the tests' own
    for name, version in pinned.items():
        least = numbers(declared.get(name, version))
        assert numbers(version)[: len(least)] == least, name


def test_types_that_the_oldest_onnx_lacks_are_asked_for_before_use() -> None:
    """Such a name at the top of a module would end every import there."""
    sources = [path for folder in ("src", "passes") for path in (ROOT / folder).rglob("*.py")]
    newer = re.compile(r"\b(?:T|TensorProto)\.(?:U?INT2|FLOAT8E8M0)\b")
    assert not [path for path in sources if newer.search(path.read_text())]


def test_versions_agree() -> None:
    assert PROJECT["version"] == __version__
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
