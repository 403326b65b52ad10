"""Child processes: their environment, and how one ended in words."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError

_LINE = 300


def child_environment() -> dict[str, str]:
    """The environment in which a child finds this very package."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}


def ending(code: int, errors: str) -> str:
    """How a process ended."""
    if code < 0:
        try:
            return f"crashed ({signal.Signals(-code).name})"
        except ValueError:
            return f"crashed (signal {-code})"
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:_LINE] if lines else f"exit code {code}"


class ChildError(GraphoptError):
    """A child process that gave no result; the message says how it ended."""


def call(function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
    """Call a module-level function in a process of its own.

    Args:
        function: a function that can be imported; arguments and result must be picklable.
        *args: its arguments.
        timeout: seconds after which the process is killed.

    Raises:
        GraphoptError: the function raised one.
        ChildError: it raised something else, crashed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="graphopt-call-") as name:
        folder = Path(name)
        job = folder / "job"
        job.write_bytes(pickle.dumps((function.__module__, function.__qualname__, args)))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "graphopt.audit.child", str(folder)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                errors="replace", timeout=timeout, check=False, env=child_environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ChildError(f"stopped after {timeout:g} s") from None
        result = folder / "result"
        if not result.exists():
            raise ChildError(ending(done.returncode, done.stderr))
        outcome = pickle.loads(result.read_bytes())
    if isinstance(outcome, GraphoptError):
        raise outcome
    return outcome
