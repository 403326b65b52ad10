"""The growth of each optimizer's time with the graph: synthetic models from 1,000 to 200,000 nodes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.optimizers import seconds
from benchmarks.synthetic import MIXES, build
from benchmarks.tools import OPTIMIZERS, count_nodes, measure

SIZES = (1_000, 10_000, 100_000, 200_000)
LIMIT = 120.0  # seconds; after a timeout a tool is not tried on larger graphs of that mix


def run(mixes: list[str] | None, sizes: tuple[int, ...], tools: list[str] | None, repeats: int) -> None:
    """Measure each tool on each mix and size; earlier results of other tools are kept."""
    data: dict[str, Any] = (results.load("scaling") or {"data": {}})["data"]
    for mix in mixes or MIXES:
        given_up: set[str] = set()
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                source, target = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
                source.write_bytes(build(mix, size).SerializeToString())
                for tool in tools or OPTIMIZERS:
                    if tool in given_up:
                        report: dict[str, Any] = {"failed": "gave up at a smaller size"}
                    else:
                        report = measure(tool, source, target, repeats, LIMIT)
                    if "failed" in report:
                        given_up.add(tool)
                    else:
                        report["nodes"] = count_nodes(target)
                    data.setdefault(mix, {}).setdefault(tool, {})[str(size)] = report
                    shown = report.get("failed") or f"{seconds(report):.3f} s, {report['nodes']} nodes left"
                    print(f"{mix} {size} {tool}: {shown}", flush=True)
                    results.save("scaling", data)


def growth(reports: dict[str, Any], small: int = 10_000, large: int = 100_000) -> float | None:
    """time(large) / time(small); about 10 is linear, 100 quadratic."""
    few, many = reports.get(str(small)), reports.get(str(large))
    if not few or not many or "failed" in few or "failed" in many:
        return None
    return seconds(many) / seconds(few)
