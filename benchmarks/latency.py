"""Deployed latency and session start: the speed of each optimizer's output.

All variants of a model are sessions of one process and run in interleaved rounds, so that a noisy minute affects all
of them alike; ratios are taken round by round. Before each timed burst a session runs once untimed, because the
variants before it evicted its weights from the cache.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.export import exported
from benchmarks.skeleton import sample_inputs
from benchmarks.tools import HERE, PEERS, measure

BASE = "raw@all"  # the default: onnxruntime's own optimizer at session start
_OFFLINE = ("ort_basic", "ort_all")


def variants() -> dict[str, tuple[str | None, str]]:
    """Name of a variant -> the tool that wrote its file (None: the export itself) and the session's level."""
    found: dict[str, tuple[str | None, str]] = {"raw@none": (None, "none"), BASE: (None, "all")}
    found |= {f"{peer}@all": (peer, "all") for peer in PEERS if peer not in _OFFLINE}
    found["ort_all@none"] = ("ort_all", "none")
    found["graphopt_basic@all"] = ("graphopt_basic", "all")
    found["graphopt_all@none"] = ("graphopt_all", "none")
    found["graphopt_all_data@none"] = ("graphopt_all_data", "none")  # weights in a file beside the model
    return found


def run(
    models: list[str] | None, dress: str | None, threads: tuple[int, ...], budget: float, *, fresh: bool,
    only: list[str] | None = None,
) -> None:  # fmt: skip
    """Measure every model in a separate process; each result is stored at once.

    Args:
        models: names, or dress/name; all if None.
        dress: only the exports of one dress.
        threads: intra-op thread counts.
        budget: seconds for each model and thread count.
        fresh: discard earlier results.
        only: variants to measure besides the export itself under onnxruntime's optimizer; all if None.
    """
    data: list[dict[str, Any]] = [] if fresh else (results.load("latency") or {"data": []})["data"]
    rows = {row["model"]: row for row in data}
    for kind, name, path in exported(dress):
        key = f"{kind}/{name}"
        if (models and name not in models and key not in models) or (not models and key in rows):
            continue
        with tempfile.TemporaryDirectory() as folder:
            files, failed = _prepare(path, Path(folder), only)
            command = [sys.executable, "-m", "benchmarks.latency", key, json.dumps(files)]
            command += [json.dumps(threads), str(budget)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
        row = json.loads(lines[-1][2:]) if lines else {"model": key, "failed": done.stderr.strip()[-300:]}
        row.setdefault("failures", {}).update(failed)
        if key in rows:
            data[data.index(rows[key])] = row
        else:
            data.append(row)
        rows[key] = row
        results.save("latency", data)
        print(_line(row), flush=True)


def _prepare(path: Path, folder: Path, only: list[str] | None) -> tuple[dict[str, str], dict[str, str]]:
    files, failed = {}, {}
    for variant, (tool, _) in variants().items():
        if only and variant not in only and variant != BASE:
            continue
        if tool is None:
            files[variant] = str(path)
            continue
        target = folder / f"{tool}.onnx"
        report = {} if target.exists() else measure(tool, path, target, 1)
        if "failed" in report:
            failed[variant] = report["failed"]
        else:
            files[variant] = str(target)
    return files, failed


class Bench:
    """The variants of one model as sessions of this process."""

    def __init__(self, key: str, files: dict[str, str]) -> None:
        import onnx

        self.files = files
        model = onnx.load(files[BASE])
        self.feed = sample_inputs(key, model, batch=1)
        self.failures: dict[str, str] = {}

    def open(self, variant: str, threads: int) -> Any:
        """A session of one variant."""
        import onnxruntime as ort

        level = {"none": "ORT_DISABLE_ALL", "all": "ORT_ENABLE_ALL"}[variants()[variant][1]]
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        # The threads of the previous session must not spin on the cores of the next one.
        settings.add_session_config_entry("session.force_spinning_stop", "1")
        return ort.InferenceSession(self.files[variant], settings, providers=["CPUExecutionProvider"])

    def sessions(self, threads: int) -> dict[str, Any]:
        """One session for each variant that loads and gives the right numbers."""
        found: dict[str, Any] = {}
        wanted: list[np.ndarray] = []
        for variant in self.files:
            try:
                session = self.open(variant, threads)
                got = session.run(None, self.feed)
            except Exception as error:
                self.failures[variant] = str(error)[:300]
                continue
            wanted = wanted or got  # the first variant is the export itself, with onnxruntime's optimizer off
            wrong = _error(got, wanted)
            if wrong > 1e-2:
                self.failures[variant] = f"wrong numbers: relative error {wrong:.2g}"
            else:
                found[variant] = session
        return found

    def latency(self, threads: int, budget: float) -> dict[str, Any]:
        """Milliseconds of each variant, and its speed-up over BASE and over graphopt's best variant, round by round."""
        sessions = self.sessions(threads)
        burst = {name: self._burst(session) for name, session in sessions.items()}
        times: dict[str, list[float]] = {name: [] for name in sessions}
        order = list(sessions)
        shuffle = random.Random(0)
        stop = time.perf_counter() + budget
        while len(times[BASE]) < 7 or (time.perf_counter() < stop and len(times[BASE]) < 101):
            shuffle.shuffle(order)
            for name in order:
                times[name].append(self._time(sessions[name], burst[name]))
        ours = [name for name in times if name.startswith("graphopt")]
        best = min(ours, key=lambda name: results.spread(times[name])["median"], default=BASE)
        return {
            name: {
                "ms": results.spread(values),
                "ratio": results.spread([base / own for base, own in zip(times[BASE], values, strict=True)]),
                "to_ours": results.spread([own / it for own, it in zip(times[best], values, strict=True)]),
                "rounds": len(values),
            }
            for name, values in times.items()
        }

    def _burst(self, session: Any) -> int:
        """The number of runs in about five milliseconds: shorter bursts would measure the resolution of the clock."""
        return max(1, min(50, int(5.0 / max(self._time(session, 1), 0.01))))

    def _time(self, session: Any, runs: int) -> float:
        session.run(None, self.feed)
        start = time.perf_counter()
        for _ in range(runs):
            session.run(None, self.feed)
        return (time.perf_counter() - start) / runs * 1e3

    def start(self, rounds: int = 9) -> dict[str, Any]:
        """Milliseconds until a session is ready, in interleaved rounds, on one thread."""
        times: dict[str, list[float]] = {name: [] for name in self.files if name not in self.failures}
        for _ in range(rounds):
            for name, values in times.items():
                begin = time.perf_counter()
                session = self.open(name, 1)
                values.append((time.perf_counter() - begin) * 1e3)
                del session
        return {name: results.spread(values) for name, values in times.items()}


def _error(got: list[Any], wanted: list[Any]) -> float:
    worst = 0.0
    for one, two in zip(got, wanted, strict=True):
        if one.shape != two.shape:
            return float("inf")
        difference = np.abs(one.astype(np.float64) - two.astype(np.float64)).max(initial=0.0)
        worst = max(worst, float(difference / (np.abs(two).max(initial=0.0) + 1e-12)))
    return worst if np.isfinite(worst) else float("inf")


def _line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['model']}: {row['failed']}"
    parts = []
    for threads, variants_of in row["latency"].items():
        known = variants_of.items()
        cells = ", ".join(f"{name} {got['ms']['median']:.2f} ({got['ratio']['median']:.2f}x)" for name, got in known)
        parts.append(f"{threads} threads: {cells}")
    return f"{row['model']}: " + "; ".join(parts)


def main(key: str, files: str, threads: str, budget: str) -> None:
    """The measured process."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    bench = Bench(key, json.loads(files))
    latency = {count: bench.latency(count, float(budget)) for count in json.loads(threads)}
    report = {"model": key, "latency": latency, "start": bench.start(), "failures": bench.failures}
    print("@@" + json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
