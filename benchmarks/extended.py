"""The speed of a converted model without the runtime's optimizer, against the export with all its optimizations.

`python -m benchmarks.extended ts/bert ts/resnet18:u8s8pc` measures exports, and quantized forms of them as
`benchmarks.schemes` makes them.
Both sessions alternate in one process, on one thread; times are CPU times, so that other programs count less.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.export import model_path
from benchmarks.schemes import quantized
from benchmarks.skeleton import sample_inputs
from graphopt import optimize
from graphopt.audit.bench import Variant, largest_error, open_session

_BURST = 0.01


def measure(path: Path, converted: Path, feed: dict[str, Any], budget: float) -> tuple[float, float, float, float]:
    """The least milliseconds of both, the median of their ratios, and the largest relative difference."""
    variants = (Variant("raw@all", str(path), "all"), Variant("graphopt@none", str(converted), "none"))
    sessions = [open_session(variant, 1) for variant in variants]
    outputs = [session.run(None, feed) for session in sessions]
    start = time.process_time()
    sessions[0].run(None, feed)
    runs = max(1, min(50, int(_BURST / max(time.process_time() - start, 1e-5))))
    taken: list[list[float]] = [[], []]
    stop = time.perf_counter() + budget
    while time.perf_counter() < stop or len(taken[0]) < 9:
        for at in random.sample((0, 1), 2):
            sessions[at].run(None, feed)
            start = time.process_time()
            for _ in range(runs):
                sessions[at].run(None, feed)
            taken[at].append((time.process_time() - start) / runs * 1e3)
    ratio = float(np.median(np.array(taken[0]) / np.array(taken[1])))
    return min(taken[0]), min(taken[1]), ratio, largest_error(outputs[0], outputs[1])[1]


def main(names: list[str], budget: float = 5.0) -> None:
    """Measure models and print a table."""
    print("| model | raw, ORT_ENABLE_ALL | `all`, ORT_DISABLE_ALL | ratio | difference |\n|---|---|---|---|---|")
    for name in names:
        model, _, kind = name.partition(":")
        path = model_path(*model.split("/"))
        with tempfile.TemporaryDirectory() as folder:
            feed = sample_inputs(model, onnx.load(path))
            if kind:
                model_of_kind = quantized(onnx.load(path), kind, feed)
                path = Path(folder) / "quantized.onnx"
                onnx.save(model_of_kind, path)
            converted = Path(folder) / "converted.onnx"
            onnx.save(optimize(onnx.load(path), level="all"), converted)
            raw, ours, ratio, error = measure(path, converted, feed, budget)
        print(f"| {name} | {raw:.2f} ms | {ours:.2f} ms | {ratio:.2f} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
