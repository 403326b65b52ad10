"""No malformed model of one operator ends the process in which its types are inferred, or raises from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.versions import NEW_INFERENCE

FOUND = (328, 3666)
"""Mutants that ended the process once: a LayerNormalization whose axis fits no 32-bit integer."""


def outcome(first: int, last: int) -> dict[str, Any]:
    """What became of the mutants of some numbers."""
    command = [sys.executable, "-m", "tests.hostile.mutant_child", str(first), str(last)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(first: int, last: int) -> None:
    found = outcome(first, last)
    assert not found["ended"], found["ended"]
    assert not found["raised"], found["raised"]
    assert found["refused"] < (last - first) / 3  # the others got as far as inference


def test_a_sample_of_mutants() -> None:
    check(0, 400)


@pytest.mark.parametrize("number", FOUND)
def test_those_that_once_ended_the_process(number: int) -> None:
    found = outcome(number, number + 1)
    assert found == {"ended": [], "raised": [], "refused": 0 if NEW_INFERENCE else found["refused"]}


@pytest.mark.slow
def test_many_mutants() -> None:
    check(400, 10_000)


def test_operands_of_unknown_types_do_not_end_the_process() -> None:
    """That of RegexFullMatch, LabelEncoder and DictVectorizer reads the type that a custom operator does not have."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.untyped_child"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-200:]
    assert int(done.stdout) > 2_000
