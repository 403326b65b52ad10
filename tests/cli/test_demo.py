"""`graphopt demo`: three networks in one table that fits a screen, and a sentence for each."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import onnx
import pytest

from graphopt import demo
from graphopt.audit import audit
from graphopt.cli import demonstrating
from tests.cli.conftest import Run, run, small_model

__all__ = ["run"]

SKELETONS = Path(__file__).parents[1] / "models" / "skeletons"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model in the place of each network, and no peers."""
    for name in demonstrating._SHOWN:
        monkeypatch.setattr(demo, name, small_model)
    monkeypatch.setattr(demonstrating, "_AGAINST", ())


@pytest.mark.usefixtures("quick")
def test_three_networks_in_one_table(run: Run) -> None:
    done = run("demo", "--budget", "0.05")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "nodes",
        "left",
        "torch.export",
        "speed",
        "training",
        "form",
        "speed",
        "quantized",
        "speed",
    ]
    assert not any("\\n" in line for line in lines)
    assert max(map(len, lines[: lines.index("")])) <= 80
    for name in demonstrating._SHOWN:
        assert sum(line.startswith(f"{name} (") for line in lines) == 1
    reports = json.loads(run("demo", "--budget", "0.05", "--json").stdout)
    assert [Path(each["model"]).stem for each in reports] == list(demonstrating._SHOWN)


def test_names_of_everybody_fit(run: Run) -> None:
    found = audit(small_model(), levels=("basic",), against=[], rounds=2, starts=1, verify=False)
    long = dataclasses.replace(found.rows[0], name="onnxoptimizer")
    audits = dict.fromkeys(demonstrating._SHOWN, dataclasses.replace(found, rows=[*found.rows, long]))
    from rich.console import Console

    with Console(width=80).capture() as _:
        width = Console(width=200).measure(demonstrating._table(audits)).maximum
    assert width <= 80


def test_what_torch_wrote_is_the_skeleton() -> None:
    shipped = Path(demo.__file__).with_name("mobilenet_v3.onnx.gz")
    assert shipped.read_bytes() == (SKELETONS / "dynamo_raw" / "mobilenetv3_small_100.onnx.gz").read_bytes()
    assert onnx.checker.check_model(demo.mobilenet_v3(), full_check=True) is None


def test_write_needs_a_name(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--write", tmp_path / "m.onnx")
    assert done.exit_code == 2
    assert "needs a NAME" in done.stderr
