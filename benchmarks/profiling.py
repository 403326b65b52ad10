"""Where graphopt's time goes: attempts, hits and seconds of each rule, and the cost per node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from onnx import ModelProto

from benchmarks import results
from benchmarks.skeleton import load_skeleton, names
from benchmarks.synthetic import MIXES, build


def sources(keys: list[str] | None, mixes: Iterable[str], nodes: int) -> Iterable[tuple[str, ModelProto]]:
    """The models of a profile: skeletons, then synthetic graphs."""
    for key in names():
        if not keys or key in keys or key.partition("/")[2] in keys:
            yield key, load_skeleton(key)
    for mix in mixes:
        yield f"synthetic/{mix}", build(mix, nodes)


def profile_one(model: ModelProto, level: str, *, timed: bool = True) -> dict[str, Any]:
    """Load, optimize and flush one model; returns the times of each phase and rule."""
    from graphopt import Model, PassManager

    manager = PassManager(level, profile=timed)
    data = model.SerializeToString()
    start = time.perf_counter()
    view = Model.load(data)
    loaded = time.perf_counter()
    result = manager.run(view)
    ran = time.perf_counter()
    result.model.SerializeToString()
    flushed = time.perf_counter()
    rules = {
        name: {"attempts": stats.attempts, "hits": stats.hits, "seconds": round(stats.seconds, 6)}
        for name, stats in result.stats.items()
    }
    return {
        "nodes": result.before.nodes, "left": result.after.nodes,
        "seconds": {"load": loaded - start, "run": ran - loaded, "flush": flushed - ran},
        "attempts_per_node": sum(rule["attempts"] for rule in rules.values()) / max(result.before.nodes, 1),
        "failures": len(result.failures), "rules": rules,
    }  # fmt: skip


def run(keys: list[str] | None, level: str, nodes: int) -> None:
    """Profile all skeletons and mixes, print the sums, store the results."""
    data: dict[str, Any] = {}
    for key, model in sources(keys, () if keys else MIXES, nodes):
        try:
            data[key] = profile_one(model, level)
        except Exception as error:
            data[key] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            print(key, data[key]["failed"], flush=True)
    results.save(f"profile_{level}", data)
    show(data)


def totals(data: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The sums over all models for each rule, the most expensive first."""
    added: dict[str, dict[str, float]] = {}
    for report in data.values():
        for name, rule in report.get("rules", {}).items():
            into = added.setdefault(name, {"attempts": 0, "hits": 0, "seconds": 0.0})
            for field in into:
                into[field] += rule[field]
    return dict(sorted(added.items(), key=lambda item: -item[1]["seconds"]))


def show(data: dict[str, Any]) -> None:
    """Print phases per node and the rules by cost."""
    good = [report for report in data.values() if "failed" not in report]
    nodes = sum(report["nodes"] for report in good) or 1
    print(f"{len(good)} models, {nodes} nodes, {sum(report['left'] for report in good)} left")
    for phase in ("load", "run", "flush"):
        seconds = sum(report["seconds"][phase] for report in good)
        print(f"{phase:8} {seconds:8.3f} s {seconds / nodes * 1e6:8.1f} us a node")
    print(f"{'rule':48} {'attempts':>9} {'hits':>7} {'seconds':>9} {'us/attempt':>10}")
    for name, rule in totals(data).items():
        each = rule["seconds"] / rule["attempts"] * 1e6 if rule["attempts"] else 0.0
        print(f"{name:48} {rule['attempts']:9.0f} {rule['hits']:7.0f} {rule['seconds']:9.4f} {each:10.2f}")
