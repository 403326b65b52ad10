"""The cost and the result of optimizing: time, peak memory and nodes, for every tool on every model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.export import exported
from benchmarks.tools import OPTIMIZERS, count_nodes, measure


def run(
    models: list[str] | None,
    dress: str | None,
    tools: list[str] | None,
    repeats: int,
    *,
    fresh: bool,
) -> None:
    """Measure all tools on all models, model by model; each result is stored at once."""
    data: list[dict[str, Any]] = [] if fresh else (results.load("optimizers") or {"data": []})["data"]
    rows = {row["model"]: row for row in data}
    for kind, name, path in exported(dress):
        key = f"{kind}/{name}"
        if models and name not in models and key not in models:
            continue
        row = rows.setdefault(key, {"model": key})
        if row not in data:
            data.append(row)
        row["nodes"], row["bytes"] = count_nodes(path), path.stat().st_size
        row.setdefault("tools", {})
        for tool in tools or OPTIMIZERS:
            if fresh or tools or tool not in row["tools"]:
                row["tools"][tool] = _one(tool, path, repeats)
        results.save("optimizers", data)
        print(_line(row), flush=True)


def _one(tool: str, path: Path, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        report = measure(tool, path, target, repeats)
        if "failed" not in report:
            report["nodes"] = count_nodes(target)
            report["bytes"] = sum(file.stat().st_size for file in Path(folder).iterdir())
        return report


def seconds(report: dict[str, Any]) -> float:
    """The time of a report: the median of its runs."""
    return results.spread(report["runs_s"])["median"]


def _line(row: dict[str, Any]) -> str:
    parts = []
    for tool, got in row["tools"].items():
        parts.append(f"{tool} failed" if "failed" in got else f"{tool} {seconds(got):.3f} s {got['nodes']}")
    return f"{row['model']} ({row['nodes']} nodes): " + ", ".join(parts)
