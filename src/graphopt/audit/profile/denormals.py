"""Denormals in weights, folded weights and activations, and their cost on this machine.

`session.set_denormal_as_zero` only applies to the thread that runs a session if the first session of the process sets
it, so runs that flush denormals use a separate process.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphopt.audit.bench import Job, Variant, largest_error
from graphopt.audit.profile.record import SWITCH, Denormals
from graphopt.audit.profile.values import count_denormals, denormals
from graphopt.audit.statistics import Spread, speedups
from graphopt.audit.timing import Progress, measure
from graphopt.ir import FLOAT_TYPES, Model
from graphopt.system.processes import call
from graphopt.system.sessions import open_session

FLUSH = {SWITCH: "1"}
_MEASURED = ("none", "all")
_WIDTH = 256
_REPEATS = 9


def profile_denormals(
    path: Path, optimized: Path | None, feed: dict[str, Any], progress: Progress, *, threads: int, budget: float,
    cured: Path | None = None,
) -> Denormals:  # fmt: skip
    """Count denormals and measure their cost.

    Args:
        path: the model.
        optimized: the graph as ONNX Runtime runs it, for folded weights.
        feed: inputs for activations and timing.
        progress: callback that receives the progress.
        threads: intra-op threads.
        budget: seconds of rounds.
        cured: the model with its negligible weights set to zero.
    """
    progress("counting denormals", 0.0)
    weights, of_weights = _in_weights(path)
    folded, of_folded = _in_weights(optimized) if optimized is not None else ({}, 0)
    activations, of_activations = count_denormals(path, feed)
    found = Denormals(weights, folded, activations, (of_weights, of_folded, of_activations))
    progress("timing products with denormals", 0.0)
    found.penalty = call(denormal_penalty)
    plain = [Variant(level, str(path), level) for level in _MEASURED]
    cures = [Variant(f"{level}, cured", str(cured), level) for level in _MEASURED] if cured is not None else []
    ordinary = measure(Job([*plain, *cures], "all", feed, (threads,), budget, starts=0), progress)
    flushed = [Variant(level, str(path), level, FLUSH) for level in _MEASURED]
    flushing = measure(Job(flushed, "all", feed, (threads,), budget, starts=0), progress)
    before, after = ordinary.latency.get(threads, {}), flushing.latency.get(threads, {})
    for level, variant in zip(_MEASURED, flushed, strict=True):
        if level in before and level in after:
            rounds = min(len(before[level]), len(after[level]))
            found.plain[level], found.flushed[level] = Spread.of(before[level]), Spread.of(after[level])
            found.speedup[level] = speedups(before[level][:rounds], after[level][:rounds])
            found.error[level] = largest_error(call(_outputs, plain[0], feed), call(_outputs, variant, feed))[1]
        if level in before and f"{level}, cured" in before:
            times = before[f"{level}, cured"]
            found.cured[level], found.cure[level] = Spread.of(times), speedups(before[level], times)
    return found


def _outputs(variant: Variant, feed: dict[str, Any]) -> list[Any]:
    """The outputs of the first session of a process."""
    outputs: list[Any] = open_session(variant.path, level=variant.runtime, config=variant.config).run(None, feed)
    return outputs


def denormal_penalty() -> float:
    """The slowdown of a matrix product with denormal weights; in a separate process."""
    x = np.full((_WIDTH, _WIDTH), 0.5, np.float32)
    best = []
    for weight in (1.0, 1e-39):
        w = onnx.numpy_helper.from_array(np.full((_WIDTH, _WIDTH), weight, np.float32), "w")
        ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x.shape) for name in "xy"]
        node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
        graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [w])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        session = open_session(model)
        session.run(None, {"x": x})
        times = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            session.run(None, {"x": x})
            times.append(time.perf_counter() - start)
        best.append(min(times))
    return best[1] / best[0]


def _in_weights(path: Path) -> tuple[dict[str, int], int]:
    counts: dict[str, int] = {}
    total = 0
    for graph in Model.load(path).graphs():
        for value in graph.initializers:
            if value.tensor is None or value.tensor.dtype not in FLOAT_TYPES:
                continue
            total += value.tensor.numel
            if number := denormals(value.tensor.array()):
                counts[value.name] = number
    return counts, total
