"""A command that is told to end: what it started ends, and what it had under way goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from graphopt.system.files import is_temporary
from tests.engine.misbehaving import heed_signals

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_command_ends_with_all_that_it_started(model_file: Path, tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    audit = subprocess.Popen(
        [sys.executable, "-m", "graphopt", "audit", str(model_file), "--budget", "60", "--level", "basic"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(place)}, preexec_fn=heed_signals,
    )  # fmt: skip
    seen: list[psutil.Process] = []
    until = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < until:
        seen = psutil.Process(audit.pid).children(recursive=True)
        time.sleep(0.05)
    audit.send_signal(number)
    _, errors = audit.communicate(timeout=60)
    assert audit.returncode == CODES[number]
    assert errors == "graphopt: interrupted\n"
    _, left = psutil.wait_procs(seen, timeout=10)
    assert left == []
    assert not [path for path in place.iterdir() if is_temporary(path.name)]
