"""Every optimizer as one call from file to file, and the process in which it is measured.

Each measurement is a separate process, `python -m benchmarks.tools TOOL SOURCE TARGET REPEATS`: a crash, a leak or a
warm cache of one tool does not affect another. Imports are timed separately.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Job = Callable[[str, str], None]
HERE = Path(__file__).resolve().parent


def _plain() -> Job:
    import onnx

    def job(source: str, target: str) -> None:
        beside = bool(_weights(source))
        onnx.save(onnx.load(source), target, save_as_external_data=beside, location=Path(target).name + ".data")

    return job


def _graphopt(level: str, *, beside: bool = False) -> Callable[[], Job]:
    def prepare() -> Job:
        # Imports are timed separately, as for the other tools: graphopt imports onnx and its passes on first use.
        from graphopt import ExternalData, PassManager

        manager = PassManager(level)
        layout = ExternalData() if beside else None

        def job(source: str, target: str) -> None:
            manager.run(source).save(target, layout)

        return job

    return prepare


def _onnxoptimizer() -> Job:
    import onnx
    import onnxoptimizer

    def job(source: str, target: str) -> None:
        onnx.save(onnxoptimizer.optimize(onnx.load(source)), target)

    return job


def _onnxsim() -> Job:
    import onnxsim

    def job(source: str, target: str) -> None:
        onnxsim.simplify(source, output_path=target)

    return job


def _onnxslim() -> Job:
    import onnxslim

    def job(source: str, target: str) -> None:
        onnxslim.slim(source, target)

    return job


def _onnxscript() -> Job:
    import onnx_ir
    import onnxscript.optimizer

    def job(source: str, target: str) -> None:
        model = onnxscript.optimizer.optimize(onnx_ir.load(source))
        large = os.path.getsize(source) < 2**20 and _weights(source) > 2**31
        onnx_ir.save(model, target, external_data=Path(target).name + ".data" if large else None)

    return job


def _weights(source: str) -> int:
    """Bytes of the files beside `source` that hold its weights."""
    return sum(path.stat().st_size for path in Path(source).parent.glob(Path(source).name + ".data*"))


def _ort(level: str) -> Callable[[], Job]:
    def prepare() -> Job:
        import onnxruntime as ort

        def job(source: str, target: str) -> None:
            settings = ort.SessionOptions()
            settings.log_severity_level = 3
            settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
            settings.optimized_model_filepath = target
            if _weights(source):
                key = "session.optimized_model_external_initializers_file_name"
                settings.add_session_config_entry(key, Path(target).name + ".data")
            ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])

        return job

    return prepare


TOOLS: dict[str, Callable[[], Job]] = {
    "load_save": _plain,
    "graphopt_basic": _graphopt("basic"),
    "graphopt_extended": _graphopt("extended"),
    "graphopt_all": _graphopt("all"),
    "graphopt_all_data": _graphopt("all", beside=True),
    "onnxoptimizer": _onnxoptimizer,
    "onnxsim": _onnxsim,
    "onnxslim": _onnxslim,
    "onnxscript": _onnxscript,
    "ort_basic": _ort("ORT_ENABLE_BASIC"),
    "ort_all": _ort("ORT_ENABLE_ALL"),
}
OURS = ("graphopt_basic", "graphopt_extended", "graphopt_all", "graphopt_all_data")
OPTIMIZERS = tuple(name for name in TOOLS if name != "graphopt_all_data")  # each way to optimize once
PEERS = tuple(name for name in TOOLS if name not in OURS and name != "load_save")


def measure(tool: str, source: Path, target: Path, repeats: int = 3, limit: float = 600.0) -> dict[str, Any]:
    """Run one tool on one file in a separate process.

    Returns import time, the time of each run, resident memory after the import and at its peak in the first run, and
    the CPU time from the start of the process to the end of that run; or `failed` with the reason.
    """
    command = [sys.executable, "-m", "benchmarks.tools", tool, str(source), str(target), str(repeats)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=HERE.parent, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"no result in {limit:.0f} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("@@"):
            return json.loads(line[2:])
    reason = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no message"]
    return {"failed": f"exit code {done.returncode}: {reason[-1][:300]}"}


def count_nodes(path: Path) -> int:
    """Nodes of the model, including subgraphs and functions."""
    import onnx

    def count(nodes: Any) -> int:
        total = 0
        for node in nodes:
            total += 1
            for attribute in node.attribute:
                total += count(attribute.g.node) + sum(count(graph.node) for graph in attribute.graphs)
        return total

    model = onnx.load(path, load_external_data=False)
    return count(model.graph.node) + sum(count(function.node) for function in model.functions)


def _resident(field: str) -> float:
    """Megabytes; from /proc, since `getrusage` of a child starts at the size of its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def main(tool: str, source: str, target: str, repeats: str) -> None:
    """The measured process."""
    start = time.perf_counter()
    job = TOOLS[tool]()
    if "onnx" in sys.modules:
        # onnx registers its operators on first access, onnxruntime on import.
        sys.modules["onnx"].defs.has("Relu")
    imported = time.perf_counter() - start
    after_import = _resident("VmRSS")
    runs = []
    for turn in range(int(repeats)):
        Path(target).unlink(missing_ok=True)
        start = time.perf_counter()
        job(source, target)
        runs.append(round(time.perf_counter() - start, 5))
        if turn == 0:
            peak, processor = _resident("VmHWM"), time.process_time()
    report = {
        "import_s": round(imported, 4), "runs_s": runs, "import_mb": after_import, "peak_mb": peak,
        "cpu_s": round(processor, 4),
    }  # fmt: skip
    print("@@" + json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
