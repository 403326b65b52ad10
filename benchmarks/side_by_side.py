"""Alternating runs of one network: by the runtime, graphopt and OpenVINO; their times and deviations.

On one thread times are CPU times, which other programs affect little; on more they are wall-clock times. The least of
the rounds counts, and each timed run directly follows an untimed one; short runs follow several, since the runs in
between have evicted their data from the caches.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import figure, grid
from graphopt.audit.bench import Variant, open_variant

_LEAST_ROUNDS = 7
_TURN_MS = 2.0
"""The least duration of a turn: half of it for untimed runs, then timed ones."""
Run = Callable[[], list[Any]]
Runs = dict[str, Run]


def runs_of(source: Path, converted: Path, basic: Path | None, feed: dict[str, Any], threads: int) -> Runs:
    """The runs that alternate, as far as they are possible.

    Args:
        source: the network; it runs with the runtime's optimizer off, with all optimizations, and in OpenVINO.
        converted: the result of level `all`.
        basic: the result of level `basic`, for OpenVINO; None for no run of OpenVINO.
        feed: its inputs.
        threads: intra-op threads.
    """
    runs: Runs = {
        "off": _runtime(source, "none", feed, threads),
        "graphopt": _runtime(converted, "none", feed, threads),
    }
    with contextlib.suppress(Exception):  # ENABLE_ALL fails on some models whose parameters have shape [1]
        runs["runtime"] = _runtime(source, "all", feed, threads)
    if basic is not None:
        for key, path in (("openvino", source), ("openvino basic", basic)):
            with contextlib.suppress(Exception):  # it rejects some models
                runs[key] = _other(path, feed, threads)
    return runs


def _runtime(path: Path, level: str, feed: dict[str, Any], threads: int) -> Run:
    session = open_variant(Variant(level, str(path), level), threads)
    return lambda: session.run(None, feed)


def openvino() -> Any:
    """OpenVINO if it is installed, else None."""
    try:
        import openvino as found
    except ImportError:
        return None
    return found


def _other(path: Path, feed: dict[str, Any], threads: int) -> Run:
    """A network in OpenVINO, in float32."""
    core = openvino().Core()
    core.set_property({"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    request = core.compile_model(core.read_model(path), "CPU").create_infer_request()

    def run() -> list[Any]:
        request.infer(feed)
        return [tensor.data for tensor in request.output_tensors]

    run()
    return run


def least(runs: Runs, budget: float, threads: int) -> dict[str, float]:
    """The least milliseconds of each, measured for `budget` seconds."""
    clock = time.process_time if threads == 1 else time.perf_counter
    best = dict.fromkeys(runs, math.inf)
    stop, rounds = time.perf_counter() + budget, 0
    while rounds < _LEAST_ROUNDS or time.perf_counter() < stop:
        for key, run in runs.items():
            if key == "off" and rounds >= _LEAST_ROUNDS:
                continue
            times = max(1, math.ceil(_TURN_MS / 2 / best[key]))
            for _ in range(times):
                run()
            for _ in range(times):
                start = clock()
                run()
                best[key] = min(best[key], (clock() - start) * 1e3)
        rounds += 1
    return best


def deviation(wanted: list[Any], got: list[Any]) -> tuple[float, float]:
    """The largest difference and the root mean square, relative to each output's largest magnitude."""
    greatest = square = 0.0
    for one, two in zip(wanted, got, strict=True):
        difference = np.abs(one.astype(np.float64) - two) / max(float(np.abs(one).max(initial=0)), 1e-30)
        greatest = max(greatest, float(difference.max(initial=0)))
        square = max(square, float(np.sqrt(np.mean(difference**2))))
    return greatest, square


def by_place(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Rows by processor and number of threads, with a heading for these."""
    for threads, processor in sorted({(row.get("threads", 1), row["processor"]) for row in rows}):
        many = "one thread" if threads == 1 else f"{threads} threads"
        own = [row for row in rows if (row.get("threads", 1), row["processor"]) == (threads, processor)]
        yield f"{many} of {processor}", own


def stated(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The processors, dates and revisions of measured rows."""
    runtime = machine["packages"]["onnxruntime"]
    places = []
    for processor in sorted({row["processor"] for row in rows}):
        own = [row for row in rows if row["processor"] == processor]
        days, revisions = (", ".join(sorted({row.get(key, "") for row in own} - {""})) for key in ("day", "revision"))
        places.append(f"{processor} on {days} at {revisions}")
    return f"Measured with onnxruntime {runtime} on " + "; ".join(places) + "."


def ratio(row: dict[str, Any], other: str = "runtime") -> float:
    """Our time / another's; NaN if that failed."""
    return float(row["ms"]["graphopt"] / row["ms"].get(other, math.nan))


def stamped(row: dict[str, Any], old: dict[str, Any] | None, here: dict[str, Any]) -> dict[str, Any]:
    """A row with its machine and revision, and the ratio of its previous measurement.

    Args:
        row: the measurement.
        old: the row that it replaces.
        here: the machine, from `results.machine`.
    """
    row |= {"revision": here["revision"], "processor": here["processor"], "day": here["day"]}
    if old is not None and "ms" in old and "ms" in row and old.get("processor", here["processor"]) == here["processor"]:
        row["before"] = old["before"] if old["revision"] == here["revision"] and "before" in old else ratio(old)
    return row


def is_new(row: dict[str, Any] | None, here: dict[str, Any]) -> bool:
    """Whether a row was measured here at this revision."""
    return row is not None and row.get("processor") == here["processor"] and row["revision"] == here["revision"]


SLOWER = 1.03
"""Rows slower than their previous measurement by more than this factor are listed first."""


def slower_than_before(rows: list[dict[str, Any]], named: tuple[str, ...] = ("network",)) -> str:
    """A table of the rows whose time relative to the runtime's has grown, worst first; empty if there are none.

    Args:
        rows: the measurements.
        named: the keys that identify a row, besides its processor and threads.
    """
    found = [row for row in rows if "before" in row and ratio(row) > SLOWER * row["before"]]
    if not found:
        return ""
    found.sort(key=lambda row: row["before"] / ratio(row))
    lines = []
    for row in found:
        place = [row["processor"], str(row.get("threads", 1))]
        lines.append([*(row[key] for key in named), *place, figure(row["before"]), figure(ratio(row))])
    head = [*named, "processor", "threads", "graphopt / runtime before", "now"]
    return "Slower than when it was measured before:\n\n" + grid(head, lines)
