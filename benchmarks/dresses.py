"""One network in three dresses: how far apart its exports are after each optimizer, in nodes and in run time.

A network reaches users by different exporters. After graphopt at level `basic` its exports should be one graph: this
counts the nodes that each optimizer leaves of each export, and times graphopt's results under ORT_ENABLE_ALL, side by
side. Peers are measured once and kept with the versions they had; `--fresh` measures them again.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.skeleton import load_skeleton, names, sample_inputs
from benchmarks.tools import count_nodes, measure
from benchmarks.zoo import DRESSES

OURS = "graphopt_basic"
PEERS = ("onnxsim", "onnxslim", "onnxscript")
"""The optimizers that write standard operators, as graphopt does at level `basic`."""

CLOSE = 0.05
"""Exports whose node counts differ by no more are called alike."""


def architectures() -> dict[str, list[str]]:
    """Each network that has an export in every dress, with the keys of these."""
    known = set(names())
    found: dict[str, list[str]] = {}
    for key in known:
        name = key.partition("/")[2]
        keys = [f"{dress}/{name}" for dress in DRESSES]
        if known.issuperset(keys):
            found[name] = keys
    return dict(sorted(found.items()))


def run(chosen: list[str] | None, *, fresh: bool, seconds: float) -> None:
    """Count nodes for every network, or the chosen ones, and time them for some seconds each; results are kept."""
    data: list[dict[str, Any]] = (results.load("dresses") or {"data": []})["data"]
    rows = {row["model"]: row for row in data}
    for name, keys in architectures().items():
        if chosen and name not in chosen:
            continue
        row = rows.setdefault(name, {"model": name, "nodes": {}})
        for key in keys:
            row["nodes"][key] = _counts(key, {} if fresh else row["nodes"].get(key, {}))
        if seconds > 0:
            row["ms"] = _times(keys, seconds)
        results.save("dresses", sorted(rows.values(), key=lambda one: one["model"]))
        print(_line(row), flush=True)


def nodes_left(key: str) -> int:
    """How many nodes graphopt leaves of the export called `dress/name`, at level `basic`."""
    import graphopt

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        target.write_bytes(graphopt.optimize(load_skeleton(key)).SerializeToString())
        return count_nodes(target)


def _counts(key: str, known: dict[str, Any]) -> dict[str, Any]:
    """Nodes as exported and after each optimizer; None where one fails. What is known of peers is not measured."""
    counts = {**known, OURS: nodes_left(key)}
    missing = [peer for peer in PEERS if peer not in counts]
    if missing or "raw" not in counts:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "export.onnx", Path(folder) / "optimized.onnx"
            source.write_bytes(load_skeleton(key).SerializeToString())
            counts["raw"] = count_nodes(source)
            for peer in missing:
                counts[peer] = None if "failed" in measure(peer, source, target, 1) else count_nodes(target)
    return {tool: counts[tool] for tool in ("raw", OURS, *PEERS)}


def _times(keys: list[str], seconds: float) -> dict[str, float]:
    """What a run of each export takes after graphopt, under ORT_ENABLE_ALL: the best time of every kernel, added up.

    Runs are interleaved. Kernels are timed one by one, since the best time of a whole run is out of reach where other
    programs share the machine.
    """
    import graphopt

    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        for key in keys:
            model = load_skeleton(key)
            prefix = Path(folder) / key.replace("/", "-")
            jobs[key] = (_session(graphopt.optimize(model), prefix), sample_inputs(key, model, batch=1))
        order, shuffle = list(keys), random.Random(0)
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop:
            shuffle.shuffle(order)
            for key in order:
                session, feed = jobs[key]
                session.run(None, feed)
        return {key: _best_kernels(Path(session.end_profiling())) for key, (session, _) in jobs.items()}


def _best_kernels(profile: Path) -> float:
    """Milliseconds of all kernels of a profile, each in its best run."""
    best: dict[str, int] = {}
    for event in json.loads(profile.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            best[event["name"]] = min(best.get(event["name"], event["dur"]), event["dur"])
    return round(sum(best.values()) / 1e3, 3)


def _session(model: Any, prefix: Path) -> Any:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.intra_op_num_threads = 1
    settings.enable_profiling = True
    settings.profile_file_prefix = str(prefix)
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def spread(row: dict[str, Any], tool: str = OURS) -> float | None:
    """How many times more nodes than the smallest export the largest has after a tool, less 1; None if it fails."""
    counts = [counts[tool] for counts in row["nodes"].values()]
    return None if None in counts else max(counts) / min(counts) - 1


def slowest(row: dict[str, Any]) -> float | None:
    """How much slower than the fastest export the slowest is, less 1; None when not timed."""
    times = row.get("ms", {}).values()
    return max(times) / min(times) - 1 if times else None


def best_peer(counts: dict[str, Any]) -> tuple[int, str] | None:
    """The fewest nodes that a peer leaves, and which; None if all of them fail."""
    return min(((counts[peer], peer) for peer in PEERS if counts[peer] is not None), default=None)


def _line(row: dict[str, Any]) -> str:
    cells = []
    for key, counts in row["nodes"].items():
        best = best_peer(counts)
        cells.append(f"{key.partition('/')[0]} {counts[OURS]} ({'-' if best is None else ' '.join(map(str, best))})")
    late = slowest(row)
    timed = "" if late is None else f", run times {late:.1%} apart"
    return f"{row['model']}: {', '.join(cells)}; {spread(row) or 0:.1%} apart{timed}"
