"""Denormal numbers in weights, folded weights and activations, and what flushing them to zero changes here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphopt.audit.bench import Job, Variant
from graphopt.audit.profile.record import Denormals
from graphopt.audit.profile.values import count_denormals, denormals
from graphopt.audit.statistics import Spread, speedups
from graphopt.audit.timing import Progress, measure
from graphopt.ir import FLOAT_TYPES, Model

FLUSH = {"session.set_denormal_as_zero": "1"}
_MEASURED = ("none", "all")


def profile_denormals(
    path: Path, optimized: Path | None, feed: dict[str, Any], progress: Progress, *, threads: int, budget: float
) -> Denormals:
    """Count denormals and measure what they cost.

    Args:
        path: the model.
        optimized: the graph as ONNX Runtime runs it, for folded weights.
        feed: inputs for activations and timing.
        progress: told how far things are.
        threads: intra-op threads.
        budget: seconds of rounds.
    """
    progress("counting denormals", 0.0)
    weights, of_weights = _in_weights(path)
    folded, of_folded = _in_weights(optimized) if optimized is not None else ({}, 0)
    activations, of_activations = count_denormals(path, feed)
    found = Denormals(weights, folded, activations, (of_weights, of_folded, of_activations))
    plain = [Variant(level, str(path), level) for level in _MEASURED]
    flushed = [Variant(f"{level}, flushed", str(path), level, FLUSH) for level in _MEASURED]
    timing = measure(Job([*plain, *flushed], "all", feed, (threads,), budget, starts=0), progress)
    rounds = timing.latency.get(threads, {})
    for level, variant in zip(_MEASURED, flushed, strict=True):
        if level in rounds and variant.name in rounds:
            found.plain[level] = Spread.of(rounds[level])
            found.flushed[level] = Spread.of(rounds[variant.name])
            found.speedup[level] = speedups(rounds[level], rounds[variant.name])
            found.error[level] = timing.errors[variant.name][1]
    return found


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
