"""Files made to break graphopt, through its commands: see `tests.hostile.suite`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str, timeout: float) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hostile.suite", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_a_sample() -> None:
    commands = ("optimize basic", "optimize all", "diff", "explain")
    run("--every", "150", *(part for command in commands for part in ("--command", command)), timeout=300)


@pytest.mark.slow
def test_all() -> None:
    run("--files", "2600", timeout=4 * 3600)
