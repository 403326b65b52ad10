"""The first call of each optimizer in a new process, from file to file, including imports: the time that a user waits.

    python -m benchmarks first

Every call is a separate process, with bytecode compiled beforehand as in an installation. The optimizers alternate
on a model, and the fastest round of each counts, in wall-clock and CPU time: of the library call with the imports, and
of the whole process of its command, from the start of Python to its end.
"""

from __future__ import annotations

import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks import results
from benchmarks.results import geometric_mean
from benchmarks.skeleton import load_skeleton
from benchmarks.tools import HERE, count_nodes, measure

MODELS = (
    "ts/resnet50", "ts/mobilenetv2_100", "ts/efficientnet_b0", "ts/yolo_pan", "ts/bert", "dynamo/densenet121",
    "dynamo/convnext_atto", "dynamo/llama", "dynamo_raw/vit_tiny_patch16_224", "dynamo_raw/t5_encoder",
)  # fmt: skip
TOOLS = (
    "graphopt_basic", "graphopt_extended", "graphopt_all", "ort_basic", "ort_all", "onnxoptimizer", "onnxsim",
    "onnxslim",
)  # fmt: skip
BASE = "ort_all"
_SESSION = """import sys, onnxruntime as ort
settings = ort.SessionOptions()
settings.log_severity_level = 3
settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, sys.argv[1])
settings.optimized_model_filepath = sys.argv[3]
ort.InferenceSession(sys.argv[2], settings, providers=["CPUExecutionProvider"])"""
_COMMANDS: dict[str, tuple[str, ...]] = {
    **{
        f"graphopt_{each}": ("-m", "graphopt", "optimize", "-q", "--level", each)
        for each in ("basic", "extended", "all")
    },
    "ort_basic": ("-c", _SESSION, "ORT_ENABLE_BASIC"),
    "ort_all": ("-c", _SESSION, "ORT_ENABLE_ALL"),
    **{peer: ("-m", peer) for peer in ("onnxoptimizer", "onnxsim", "onnxslim")},
}
"""The words that a user would type after `python`, and the two files; the runtime has no command: a minimal script."""


def run(models: Sequence[str] | None, tools: Sequence[str] | None, rounds: int) -> None:
    """Measure all tools on all models; each result is stored at once, and results of other models are kept."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for folder in ("src", "passes", "benchmarks"):
        compileall.compile_dir(HERE.parent / folder, quiet=1)
    data: dict[str, dict[str, Any]] = (results.load("first") or {"data": {}})["data"]
    with tempfile.TemporaryDirectory() as folder:
        for key in models or MODELS:
            path = Path(folder) / "model.onnx"
            onnx.save(load_skeleton(key), path)
            data[key] = {**data.get(key, {}), **_model(path, tools or TOOLS, rounds)}
            results.save("first", data)
            print(key, ", ".join(f"{tool} {told(got)}" for tool, got in data[key].items()), flush=True)
    for tool in tools or TOOLS:
        for by in ("seconds", "cpu", "process", "process_cpu"):
            mean, wins, count = against_base(data, tool, by)
            print(f"{tool} {by}: {mean:.3f} of {BASE}'s, faster on {wins} of {count}")


def _model(path: Path, tools: Sequence[str], rounds: int) -> dict[str, dict[str, Any]]:
    target = path.with_name("optimized.onnx")
    found: dict[str, dict[str, Any]] = {}
    for number in range(rounds):
        for tool in tools if number % 2 else reversed(tools):
            report = measure(tool, path, target, 1)
            if "failed" in report:
                found.setdefault(tool, report)
                continue
            seconds = report["import_s"] + report["runs_s"][0]
            best = found.setdefault(tool, {"seconds": seconds, "nodes": count_nodes(target)})
            process, process_cpu = _process(tool, path, target)
            for name, value in (
                ("seconds", seconds), ("cpu", report["cpu_s"]), ("import", report["import_s"]),
                ("process", process), ("process_cpu", process_cpu),
            ):  # fmt: skip
                best[name] = round(min(best.get(name, value), value), 4)
            best["load"] = max(best.get("load", 0.0), round(os.getloadavg()[0], 1))
    return {tool: found[tool] for tool in tools}


def _process(tool: str, path: Path, target: Path) -> tuple[float, float]:
    """Seconds of a command's whole process, in wall-clock and CPU time."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *_COMMANDS[tool], str(path), str(target)], check=True, capture_output=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def told(got: dict[str, Any]) -> str:
    """A summary of a tool's result on a model."""
    return "failed" if "failed" in got else f"{got['seconds']:.3f} s"


def against_base(data: dict[str, dict[str, Any]], tool: str, by: str = "seconds") -> tuple[float, int, int]:
    """The ratio of a tool's time to that of the runtime's own optimizer.

    Args:
        data: the measurements, by model and tool.
        tool: the tool.
        by: `seconds` for wall-clock time, or `cpu`; for the whole process, `process` and `process_cpu`.

    Returns:
        The geometric mean, the number of models on which the tool is faster, and the number of all models.
    """
    pairs = [(got[tool], got[BASE]) for got in data.values() if tool in got and BASE in got]
    ratios = [one[by] / two[by] for one, two in pairs if by in one and by in two]
    return geometric_mean(ratios), sum(ratio < 1 for ratio in ratios), len(ratios)
