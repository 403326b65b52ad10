"""The distribution of an optimization's time, model by model: reading, types, each pass, writing."""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.export import exported

LEVELS = ("basic", "all")
REPEATS = 3
WORKLIST = "asking passes at nodes"
"""The remainder of a run without the passes and type inference: rules that did not match."""


def run(models: list[str] | None, dress: str | None) -> None:
    """Measure every model on which the optimizers were compared; each result is stored at once."""
    data: dict[str, dict[str, Any]] = (results.load("stages") or {"data": {}})["data"]
    compared = {row["model"] for row in (results.load("optimizers") or {"data": []})["data"]}
    for kind, name, path in exported(dress):
        key = f"{kind}/{name}"
        if key not in compared or (models and name not in models and key not in models):
            continue
        for level in LEVELS:
            data.setdefault(key, {})[level] = measure(path, level)
            print(key, level, told(data[key][level]), flush=True)
        results.save("stages", data)


def measure(path: Path, level: str) -> dict[str, float]:
    """Seconds of each stage of the fastest run; its passes are scaled from a run in which every attempt is timed."""
    from graphopt import PassManager

    fastest: dict[str, float] = {}
    timed = _once(PassManager(level, profile=True), path)
    for _ in range(REPEATS):
        plain = _once(PassManager(level), path)
        if not fastest or sum(plain.values()) < sum(fastest.values()):
            fastest = plain
    stages = {stage: fastest[stage] for stage in ("reading", "writing", "inferring types")}
    rest = fastest["run"]
    share = rest / timed["run"]
    passes = {name: share * seconds for name, seconds in timed.items() if name not in (*stages, "run")}
    return {**stages, **passes, WORKLIST: max(rest - sum(passes.values()), 0.0)}


def _once(manager: Any, path: Path) -> dict[str, float]:
    """One optimization from file to file; the time of passes is also included in that of `run`."""
    from graphopt import Model

    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        model = Model.load(path)
        loaded = time.perf_counter()
        result = manager.run(model)
        ran = time.perf_counter()
        result.save(Path(folder) / "optimized.onnx")
        written = time.perf_counter()
    stats = {name: entry.seconds for name, entry in result.stats.items() if entry.seconds and name != "worklist"}
    types = stats.pop("infer types")
    phases = {"reading": loaded - start, "inferring types": types, "writing": written - ran}
    return {**phases, "run": ran - loaded - types, **stats}


def told(stages: dict[str, float], most: int = 4) -> str:
    """The longest stages, each with its share."""
    whole = sum(stages.values()) or 1.0
    first = sorted(stages.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in first)
