"""The side of `against` that optimizes, with whatever graphopt is on its path: one line in, one line out.

Run by file, so that it imports nothing of the tree that it stands in.
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
    """Seconds by the clock and of the processor for one optimization."""
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
    """Answer until there are no more questions."""
    models: dict[str, onnx.ModelProto] = {}
    for line in sys.stdin:
        print(json.dumps(measure(*json.loads(line), models)), flush=True)


if __name__ == "__main__":
    main()
