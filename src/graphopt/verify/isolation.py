"""Comparing in a process of its own, so that a crash or a hang of a runtime is a line in the report."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from graphopt.errors import EngineError, GraphoptError
from graphopt.verify.interface import differences, interface_of
from graphopt.verify.oracle import Request
from graphopt.verify.report import Report
from graphopt.verify.source import ModelLike, Source

REPORT, STAGE, JOB = "report", "stage", "job"
COMMAND: tuple[str, ...] = ("-P", "-m", "graphopt.verify.worker")


def run_isolated(original: ModelLike, result: ModelLike, request: Request, timeout: float | None) -> Report:
    """Compare in a subprocess, which is killed after `timeout` seconds."""
    before, after = Source(original, "original"), Source(result, "result")
    with tempfile.TemporaryDirectory(prefix="graphopt-verify-") as name:
        folder = Path(name)
        try:
            job = (str(before.path()), str(after.path()), request)
            (folder / JOB).write_bytes(pickle.dumps(job))
            ended = _launch(folder, timeout)
            found = folder / REPORT
            if found.exists():
                outcome = pickle.loads(found.read_bytes())
                if isinstance(outcome, GraphoptError):
                    raise outcome
                if not isinstance(outcome, Report):
                    raise EngineError(f"the verification process returned {type(outcome).__name__}")
                return outcome
            stage = (folder / STAGE).read_text() if (folder / STAGE).exists() else "starting"
        finally:
            before.close()
            after.close()
    detail = f"{ended} while {stage}"
    blamed = "result" in stage and ended.startswith("crashed")
    base = Report("mismatch" if blamed else "inconclusive", request.numerics, request.seed, detail=detail)
    changes = differences(interface_of(before.proto), interface_of(after.proto))
    return Report(base.status, base.numerics, base.seed, interface=changes, detail=detail)


def _launch(folder: Path, timeout: float | None) -> str:
    """Run the worker; how it ended, for the case that it left no report."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [sys.executable, *COMMAND, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"stopped after the time limit of {timeout:g} s"
    if done.returncode < 0:
        return f"crashed ({signal.Signals(-done.returncode).name})"
    last = done.stderr.strip().splitlines()
    return f"failed ({last[-1] if last else f'exit code {done.returncode}'})"
