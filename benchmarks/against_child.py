"""The optimizing side of `against`, with the graphopt on its path: one request and one answer per line.

Run by file, so that it imports nothing from its own source tree.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import onnx

from graphopt import optimize, optimize_file


def measure(path: str, level: str, mode: str, models: dict[str, onnx.ModelProto]) -> tuple[float, float]:
    """Seconds of one optimization, in wall-clock and CPU time."""
    if mode == "memory" and path not in models:
        models[path] = onnx.load(path)
    with tempfile.TemporaryDirectory() as folder:
        gc.collect()
        clock, processor = time.perf_counter(), time.process_time()
        if mode == "memory":
            optimize(models[path], level)
        else:
            optimize_file(path, Path(folder) / "optimized.onnx", level)
        return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    """Answer until there are no more requests."""
    models: dict[str, onnx.ModelProto] = {}
    for line in sys.stdin:
        print(json.dumps(measure(*json.loads(line), models)), flush=True)


if __name__ == "__main__":
    main()
