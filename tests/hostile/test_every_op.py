"""Folding one operator of each kind gives what the runtime gives without any optimization, bit by bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from onnx import parser

from graphopt.analysis import infer_types
from graphopt.analysis.plan import Policy, plan
from graphopt.ir import Model
from tests.hostile import ops

KNOWN = {
    # In half precision the runtime keeps more digits between nodes of one model than it would store.
    "different": lambda name: "fp16_expanded" in name or "bf16_expanded" in name,
    "broken": lambda name: False,
}


def judged(first: int, last: int, chosen: str) -> list[dict[str, Any]]:
    """What became of the cases of some seeds; where the process ends, another one goes on behind the case."""
    found: list[dict[str, Any]] = []
    while True:
        arguments = [sys.executable, "-m", "tests.hostile.fold_child", str(first), str(last), chosen, str(len(found))]
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        entries = [json.loads(line) for line in done.stdout.splitlines()]
        found += [entry for entry in entries if "state" in entry]
        if done.returncode == 0:
            return found
        assert entries, done.stderr[-2000:]
        assert "phase" in entries[-1], done.stderr[-2000:]
        found.append({**entries[-1], "state": f"ended in {entries[-1]['phase']}", "failures": []})


def check(found: list[dict[str, Any]]) -> Counter[str]:
    for entry in found:
        name, state = entry["name"], entry["state"]
        assert not entry["failures"], entry
        # A runtime that ends the process on the model as it came is not ours; with the folded one it would be.
        assert state not in ("ended in fold", "ended in after"), entry
        assert state not in KNOWN or not entry["changed"] or KNOWN[state](name), entry
    return Counter(entry["state"] for entry in found)


def test_every_operator_is_drawn() -> None:
    names = {schema.name for schema, _ in ops.schemas()}
    assert len(names) > 190
    assert len(ops.schemas()) >= 500
    assert {"Softmax", "Clip", "TopK", "Resize", "Upsample", "QuantizeLinear", "StringConcat"} <= names


def test_the_same_cases_come_out_for_the_same_seed() -> None:
    first, second = ([(name, model.SerializeToString()) for name, model, _ in ops.cases(3, "Pad")] for _ in range(2))
    assert first == second


def test_every_operator_folds_to_what_the_runtime_computes() -> None:
    states = check(judged(0, 2, ""))
    assert states["same"] > 450, states


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("STFT", "float[1,8] a = {1,2,3,4,5,6,7,8}, int64 b = {2}, float[2] c = {1,1}, int64 d = {0}"),
        ("STFT", "float[1,8] a = {1,2,3,4,5,6,7,8}, int64 b = {0}, float[2] c = {1,1}, int64 d = {2}"),
        ("MelWeightMatrix", "int64 a = {0}, int64 b = {16}, int64 c = {8192}, float d = {0}, float e = {4096}"),
    ],
)
def test_the_runtime_is_not_given_what_it_divides_by_without_looking(op: str, constants: str) -> None:
    names = ", ".join(part.split(" = ")[0].split()[-1] for part in constants.split(", "))
    head = '<ir_version: 9, opset_import: ["" : 18]> g () => (y) '
    view = Model.load(parser.parse_model(f"{head}<{constants}> {{ y = {op} ({names}) }}"))
    infer_types(view)
    region = plan(view.graph, Policy())
    assert region.no_runtime or region.declined


@pytest.mark.slow
def test_backend_cases_with_constant_inputs_fold_to_what_the_runtime_computes() -> None:
    states = check(judged(0, 1, "backend:"))
    assert states["same"] > 1200, states


@pytest.mark.slow
def test_every_operator_with_more_seeds() -> None:
    states = check(judged(100, 108, ""))
    assert states["same"] > 1800, states
