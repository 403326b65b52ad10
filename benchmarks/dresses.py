"""One network in three dresses: the differences of its exports after each optimizer, in nodes and in run time.

A network reaches users through different exporters. After graphopt at level `basic` its exports should be one graph:
this counts the nodes that each optimizer leaves of each export, and times graphopt's results under ORT_ENABLE_ALL.
Peers are measured once and stored with their versions; `--fresh` measures them again.
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
"""The optimizers that write standard operators, like graphopt at level `basic`."""

CLOSE = 0.05
"""Exports whose node counts differ by at most this fraction count as alike."""


def architectures() -> dict[str, list[str]]:
    """Each network that has an export in every dress, with the keys of its exports."""
    known = set(names())
    found: dict[str, list[str]] = {}
    for key in known:
        name = key.partition("/")[2]
        keys = [f"{dress}/{name}" for dress in DRESSES]
        if known.issuperset(keys):
            found[name] = keys
    return dict(sorted(found.items()))


def run(chosen: list[str] | None, *, fresh: bool, seconds: float) -> None:
    """Count nodes for all networks or the chosen ones, and time each for `seconds`; results are stored."""
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
    """The nodes that graphopt leaves of the export `dress/name`, at level `basic`."""
    import graphopt

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        target.write_bytes(graphopt.optimize(load_skeleton(key)).SerializeToString())
        return count_nodes(target)


def _counts(key: str, known: dict[str, Any]) -> dict[str, Any]:
    """Nodes as exported and after each optimizer; None for one that fails. Known counts of peers are reused."""
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
    """The run time of each export after graphopt, under ORT_ENABLE_ALL: the sum of the best times of all kernels.

    Runs are interleaved. Kernels are timed separately, since no whole run reaches its best time while other programs
    share the machine.
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
    """The sum of the milliseconds of all kernels of a profile, each in its best run."""
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
    """Nodes of the largest export / nodes of the smallest - 1, after a tool; None if it fails."""
    counts = [counts[tool] for counts in row["nodes"].values()]
    return None if None in counts else max(counts) / min(counts) - 1


def slowest(row: dict[str, Any]) -> float | None:
    """Time of the slowest export / time of the fastest - 1; None if not timed."""
    times = row.get("ms", {}).values()
    return max(times) / min(times) - 1 if times else None


def best_peer(counts: dict[str, Any]) -> tuple[int, str] | None:
    """The fewest nodes that a peer leaves, and its name; None if all of them fail."""
    return min(((counts[peer], peer) for peer in PEERS if counts[peer] is not None), default=None)


def _line(row: dict[str, Any]) -> str:
    cells = []
    for key, counts in row["nodes"].items():
        best = best_peer(counts)
        cells.append(f"{key.partition('/')[0]} {counts[OURS]} ({'-' if best is None else ' '.join(map(str, best))})")
    late = slowest(row)
    timed = "" if late is None else f", run times {late:.1%} apart"
    return f"{row['model']}: {', '.join(cells)}; {spread(row) or 0:.1%} apart{timed}"
