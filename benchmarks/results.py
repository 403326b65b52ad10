"""Results as JSON with the machine and the versions on which they were measured, and statistics on them."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graphopt.system.machine import host, processor

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TIE = 0.03  # a difference below three per cent is a tie

_PACKAGES = (
    "onnx", "onnxruntime", "onnxoptimizer", "onnxsim", "onnxslim", "onnxscript", "onnx-ir", "numpy", "protobuf",
    "torch", "timm", "torchvision", "transformers",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """The conditions of a measurement: processor, cores, memory, system, Python, packages, revision, day."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions,
        "revision": _revision(),
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _processor() -> str:
    """Its name, which virtual machines may abbreviate to its family, and its instruction set."""
    target = host()
    return f"{processor()} ({target.name}{f' {target.core}' if target.core else ''})"


def _revision() -> str:
    command = ["git", "log", "-1", "--format=%h"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def save(kind: str, data: Any) -> Path:
    """Write `results/<kind>.json`; called after every model, so that an interrupted run keeps its results."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{kind}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"machine": machine(), "data": data}, indent=1) + "\n")
    partial.replace(path)
    return path


def load(kind: str) -> dict[str, Any] | None:
    """The result called `kind`; None if it was not measured yet."""
    path = RESULTS / f"{kind}.json"
    return json.loads(path.read_text()) if path.exists() else None


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean; NaN if there are no values."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    if len(values) < 2:
        return {"median": values[0], "low": values[0], "high": values[0]}
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "low": low, "high": high}


def verdict(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """The verdict of a ratio of times (theirs / ours): faster, slower, or a tie.

    If the interval of given quartiles contains 1, it is a tie as well.
    """
    if abs(ratio - 1) <= TIE or (low is not None and high is not None and low <= 1 <= high):
        return "tie"
    return "faster" if ratio > 1 else "slower"
