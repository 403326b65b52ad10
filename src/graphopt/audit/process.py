"""Child processes: their environment, and how one ended in words."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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
