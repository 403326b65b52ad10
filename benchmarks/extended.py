"""What a converted model is worth without the runtime's optimizer, against the export with all of it.

`python -m benchmarks.extended ts/bert ts/resnet18:u8` measures exports, and quantized forms of them that ONNX Runtime's
own quantizer makes: `u8` and `s8` with quantize and dequantize operators, `dynamic` with scales found at run time.
Both sessions run in turn in one process, one thread; times are the process's own, so that other programs count less.
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
from benchmarks.skeleton import sample_inputs
from graphopt import optimize
from graphopt.audit.bench import Variant, largest_error, open_session

_BURST = 0.01


def quantized(source: Path, kind: str, target: Path, feed: dict[str, Any]) -> None:
    """Write a quantized form of a model.

    Args:
        source: the model.
        kind: `u8` or `s8`, the type of activations (weights are int8, by channel with `u8`), or `dynamic`.
        target: where to write.
        feed: what ranges are taken from.
    """
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        feeds = iter([feed])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.feeds, None)

    prepared = target.with_suffix(".prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    if kind == "dynamic":
        q.quantize_dynamic(str(prepared), str(target))
        return
    types = {"u8": q.QuantType.QUInt8, "s8": q.QuantType.QInt8}
    settings = {"activation_type": types[kind], "weight_type": q.QuantType.QInt8, "per_channel": kind == "u8"}
    q.quantize_static(str(prepared), str(target), Reader(), quant_format=q.QuantFormat.QDQ, **settings)


def measure(path: Path, converted: Path, feed: dict[str, Any], budget: float) -> tuple[float, float, float, float]:
    """Milliseconds of both at their best, the median of their ratios, and the largest relative difference."""
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
                quantized(path, kind, Path(folder) / "quantized.onnx", feed)
                path = Path(folder) / "quantized.onnx"
            converted = Path(folder) / "converted.onnx"
            onnx.save(optimize(onnx.load(path), level="all"), converted)
            raw, ours, ratio, error = measure(path, converted, feed, budget)
        print(f"| {name} | {raw:.2f} ms | {ours:.2f} ms | {ratio:.2f} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
