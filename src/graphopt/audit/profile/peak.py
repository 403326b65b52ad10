"""The measured limits of this machine: floating-point operations and bytes per second."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.system.extras import require
from graphopt.system.sessions import open_session

_SIZE = 768
_REPEATS = 9
_DEFAULT_CACHE = 32 << 20


@dataclass(frozen=True, slots=True)
class Peak:
    """Measured limits of the machine.

    Attributes:
        gflops: float32 operations per second in a matrix product that fits into the cache, in 10^9.
        gbytes: bytes read and written per second in a copy larger than the cache, in 10^9.
        threads: the number of threads.
        cache: bytes of the last-level cache.
    """

    gflops: float
    gbytes: float
    threads: int
    cache: int


def measure_peak(threads: int = 1) -> Peak:
    """Measure both limits with ONNX Runtime's own kernels; takes about a second."""
    return Peak(_gflops(threads), _gbytes(threads), threads, last_level_cache())


def _gflops(threads: int) -> float:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((_SIZE, _SIZE)).astype(np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [_SIZE, _SIZE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [_SIZE, _SIZE])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "peak", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    seconds = _fastest(model, {"x": rng.standard_normal((_SIZE, _SIZE)).astype(np.float32)}, threads)
    onnx.checker.check_model(model)
    return 2 * _SIZE**3 / seconds / 1e9


def _gbytes(threads: int) -> float:
    count = max(4 * last_level_cache(), 64 << 20) // 4
    count = min(count, 64 << 20)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [count])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [count])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "copy", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    seconds = _fastest(model, {"x": np.ones(count, np.float32)}, threads)
    return 2 * 4 * count / seconds / 1e9


def _fastest(model: onnx.ModelProto, feed: dict[str, np.ndarray[Any, Any]], threads: int) -> float:
    ort = require("onnxruntime")

    session = open_session(model, level="all", threads=threads)
    # The output is preallocated, so that allocation is not measured.
    binding = session.io_binding()
    binding.bind_cpu_input("x", feed["x"])
    target = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(feed["x"]))
    binding.bind_ortvalue_output("y", target)
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append(time.perf_counter() - start)
    return statistics.quantiles(times, n=4)[0]


def last_level_cache() -> int:
    """Bytes of the largest cache that the system reports."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text(encoding="utf-8").strip()
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
        except (OSError, ValueError, KeyError):
            continue
    return max(sizes, default=_DEFAULT_CACHE)
