"""The gain of unrolling a loop: run time and session start of loops and of their unrolled forms."""

from __future__ import annotations

import time
from itertools import cycle, pairwise
from statistics import median

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper, parser

from benchmarks import results
from graphopt import Options, PassManager


def _chain(count: int) -> str:
    """A chain of `count` operators on single elements."""
    names = ["s", *(f"v{number}" for number in range(1, count)), "so"]
    operators = cycle(("Sin", "Abs", "Sqrt", "Cos"))
    return "  ".join(
        f"{after} = {op} ({before})" for op, (before, after) in zip(operators, pairwise(names), strict=False)
    )


BODIES = {
    "4 elementwise": ((16,), "a = Sin (s)  b = Mul (a, s)  d = Abs (b)  so = Sqrt (d)"),
    "16 elementwise": ((16,), _chain(16)),
    "64 elementwise": ((16,), _chain(64)),
    "MatMul 64x64": ((1, 64), "so = MatMul (s, w)"),
}
"""Shape of the state, and the body of an iteration."""

ROUNDS = (1, 2, 5, 20, 100)


def loop(dims: tuple[int, ...], steps: str, rounds: int) -> onnx.ModelProto:
    """A model that only has a loop of `rounds` iterations."""
    kind = f"float[{','.join(map(str, dims))}]"
    body = f"b (int64 i, bool c, {kind} s) => (bool co, {kind} so) {{ co = Identity (c)  {steps} }}"
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g ({kind} x) => ({kind} y) <int64 m = {{{rounds}}}, bool t = {{1}}>'
        f"{{ y = Loop (m, t, x) <body = {body}> }}"
    )
    weight = np.random.default_rng(0).standard_normal((64, 64), np.float32) / np.float32(8)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def session(model: onnx.ModelProto) -> tuple[ort.InferenceSession, float]:
    """A session on one thread with all of the runtime's optimizations, and the milliseconds of its start."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    start = time.perf_counter()
    made = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return made, (time.perf_counter() - start) * 1e3


def run(repeats: int = 300) -> None:
    """Measure each body at each number of iterations, loop and unrolled form alternating."""
    everything = Options(unroll_limit=10**6, unroll_runs=10**9)
    manager = PassManager(passes="eliminate_loop_with_const_trip_count", options=everything)
    data = []
    for name, (dims, steps) in BODIES.items():
        for rounds in ROUNDS:
            model = loop(dims, steps, rounds)
            unrolled = manager.run(model).model
            assert all(node.op_type != "Loop" for node in unrolled.graph.node)
            feed = {"x": np.full(dims, 0.5, np.float32)}
            sessions = [session(model), session(unrolled)]
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(repeats):
                for (made, _start), got in zip(sessions, times, strict=True):
                    start = time.perf_counter()
                    made.run(None, feed)
                    got.append((time.perf_counter() - start) * 1e6)
            row = {"body": name, "rounds": rounds, "loop_us": median(times[0]), "unrolled_us": median(times[1])}
            row.update(loop_start_ms=sessions[0][1], unrolled_start_ms=sessions[1][1])
            data.append({key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()})
            print(data[-1], flush=True)
    results.save("unrolling", {"rows": data})
