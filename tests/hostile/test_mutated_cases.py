"""No pass raises on a malformed model: golden cases with operands, attributes, sizes or constants that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def raised(first: int, last: int) -> list[tuple[int, str, str]]:
    """What passes raised on the mutants of some numbers, in a process that may die."""
    command = [sys.executable, "-m", "tests.hostile.case_child", str(first), str(last)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[tuple[int, str, str]] = json.loads(done.stdout)
    return found


def test_a_sample_of_mutated_cases() -> None:
    assert not raised(0, 2_000)


@pytest.mark.slow
def test_many_mutated_cases() -> None:
    assert not raised(2_000, 40_000)
