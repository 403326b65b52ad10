"""Small models stay small, whatever they would grow to, and broken ones are refused or left as they are."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphopt.errors import ModelError
from graphopt.manager import PassManager
from graphopt.verify import compare
from tests.hostile import models

MEMORY = 1 << 30
"""Bytes that the optimizing process may have."""

GROWTH = 5 << 18
"""Bytes that any model may grow by: small results are worth storing."""

SECONDS = 20.0
"""Far more than any of the models takes; a bomb takes minutes."""

GROWING = models.growing()
BROKEN = models.broken()


def file_name(name: str) -> str:
    return name.replace(" ", "_")


def optimize_all(cases: dict[str, onnx.ModelProto], folder: Path) -> dict[str, dict[str, Any]]:
    """What became of each model, in a process of its own; the result is beside it as `*.after`."""
    for name, model in cases.items():
        (folder / f"{file_name(name)}.onnx").write_bytes(model.SerializeToString())
    child = Path(__file__).with_name("child.py")
    done = subprocess.run(
        [sys.executable, child, folder, str(MEMORY)], capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    left = {file_name(name) for name in cases} - {entry["name"] for entry in found}
    assert done.returncode == 0, (
        f"the process ended with {done.returncode} before {sorted(left)}\n{done.stderr[-2000:]}"
    )
    return {entry["name"]: entry for entry in found}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("growing")
    return folder, optimize_all(GROWING, folder)


@pytest.mark.parametrize("name", GROWING)
def test_small_models_stay_small(name: str, grown: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, entries = grown
    entry = entries[file_name(name)]
    assert entry["before"] < 50_000
    assert not entry["failures"]
    assert entry["after"] <= entry["before"] + GROWTH
    assert entry["seconds"] < SECONDS
    result = onnx.load(folder / f"{file_name(name)}.after")
    assert [v.name for v in result.graph.output] == [v.name for v in GROWING[name].graph.output]


@pytest.mark.parametrize("name", ["Expand", "Range", "ConstantOfShape of ones", "OneHot", "Loop of many rounds"])
def test_what_is_left_alone_has_a_reason(name: str, grown: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    entry = grown[1][file_name(name)]
    assert entry["after"] == entry["before"]
    assert any("bytes" in reason or "iterations" in reason for reason in entry["reasons"])


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return optimize_all(BROKEN, tmp_path_factory.mktemp("broken"))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_survived(name: str, repaired: dict[str, dict[str, Any]]) -> None:
    entry = repaired[file_name(name)]
    assert "refused" in entry or entry["after"] <= entry["before"] + GROWTH
    assert not entry.get("failures")
    assert entry["seconds"] < SECONDS


def test_what_a_branch_never_taken_would_need_is_not_computed() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x, bool d) => (float[2] y) <int64[1] s = {100}>'
        "{ y = If (d) <then_branch = t () => (float[2] p) { p = If (d) <"
        "then_branch = tt () => (float[2] a) { a = Neg (x) },"
        "else_branch = tf () => (float[2] b) { c = ConstantOfShape (s)  e = RandomNormalLike (c)  b = Add (x, e) }> },"
        "else_branch = f () => (float[2] q) { q = Abs (x) }> }"
    )
    result = PassManager(explain=True).run(model)
    assert "ConstantOfShape" not in result.after.ops
    assert not any("ConstantOfShape" in str(event) and "fold" in event.rule for event in result.events)


def test_a_deep_chain() -> None:
    result = PassManager(strict=True).run(models.deep_chain(3000))
    assert result.after.nodes == 3000


def test_deep_branches() -> None:
    source = models.deep_branches(25)
    result = PassManager(strict=True).run(source)
    assert result.after.nodes == 3
    assert compare(source, result.model, numerics="exact").ok


@pytest.mark.parametrize("length", [0, 1, 10, 100])
def test_truncated_files_are_refused(length: int) -> None:
    data = GROWING["Resize"].SerializeToString()
    with pytest.raises(ModelError):
        PassManager().run(data[: min(length, len(data) - 7)])


@pytest.mark.parametrize("seed", range(40))
def test_garbage_is_refused_or_survived(seed: int) -> None:
    """Random bytes in the place of some of a model: an error of ours, or a result, and nothing else."""
    import random

    rng = random.Random(seed)
    data = bytearray(models.deep_branches(2).SerializeToString())
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with contextlib.suppress(ModelError):
        assert PassManager().run(bytes(data)).model.graph.node
