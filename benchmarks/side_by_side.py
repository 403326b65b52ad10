"""Runs of one network that take turns: the runtime's own, graphopt's and OpenVINO's; their times and deviations.

On one thread a time is the process's own, which other programs add little to; on more it is by the clock. The least of
the rounds counts, and each run comes right after one that is not timed; short runs after several that are not, for what
ran in between has left nothing of theirs in the caches.
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
"""So long a turn lasts at least: runs that are not timed for half of it, then those that are."""
Run = Callable[[], list[Any]]
Runs = dict[str, Run]


def runs_of(source: Path, converted: Path, basic: Path | None, feed: dict[str, Any], threads: int) -> Runs:
    """What takes turns, of what can be run at all.

    Args:
        source: the network as it is; it runs with the runtime's optimizer off, with all of it, and in OpenVINO.
        converted: what level `all` makes of it.
        basic: what level `basic` makes of it, for OpenVINO; None for nothing of OpenVINO's.
        feed: its inputs.
        threads: that work on one operator.
    """
    runs: Runs = {
        "off": _runtime(source, "none", feed, threads),
        "graphopt": _runtime(converted, "none", feed, threads),
    }
    with contextlib.suppress(Exception):  # ENABLE_ALL fails on some models whose parameters have shape [1]
        runs["runtime"] = _runtime(source, "all", feed, threads)
    if basic is not None:
        for key, path in (("openvino", source), ("openvino basic", basic)):
            with contextlib.suppress(Exception):  # it refuses some models
                runs[key] = _other(path, feed, threads)
    return runs


def _runtime(path: Path, level: str, feed: dict[str, Any], threads: int) -> Run:
    session = open_variant(Variant(level, str(path), level), threads)
    return lambda: session.run(None, feed)


def openvino() -> Any:
    """OpenVINO where it is installed, None elsewhere."""
    try:
        import openvino as found
    except ImportError:
        return None
    return found


def _other(path: Path, feed: dict[str, Any], threads: int) -> Run:
    """A network in OpenVINO, in floats of 32 bits."""
    core = openvino().Core()
    core.set_property({"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    request = core.compile_model(core.read_model(path), "CPU").create_infer_request()

    def run() -> list[Any]:
        request.infer(feed)
        return [tensor.data for tensor in request.output_tensors]

    run()
    return run


def least(runs: Runs, budget: float, threads: int) -> dict[str, float]:
    """Milliseconds of each at their least, within so many seconds."""
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
    """The greatest difference and the root of the mean square, as shares of each output's greatest number."""
    greatest = square = 0.0
    for one, two in zip(wanted, got, strict=True):
        difference = np.abs(one.astype(np.float64) - two) / max(float(np.abs(one).max(initial=0)), 1e-30)
        greatest = max(greatest, float(difference.max(initial=0)))
        square = max(square, float(np.sqrt(np.mean(difference**2))))
    return greatest, square


def by_place(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Rows of each number of threads on each processor, with the words for these."""
    for threads, processor in sorted({(row.get("threads", 1), row["processor"]) for row in rows}):
        many = "one thread" if threads == 1 else f"{threads} threads"
        own = [row for row in rows if (row.get("threads", 1), row["processor"]) == (threads, processor)]
        yield f"{many} of {processor}", own


def stated(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """On which processors rows were measured, when, and of which revisions."""
    runtime = machine["packages"]["onnxruntime"]
    places = []
    for processor in sorted({row["processor"] for row in rows}):
        own = [row for row in rows if row["processor"] == processor]
        days, revisions = (", ".join(sorted({row.get(key, "") for row in own} - {""})) for key in ("day", "revision"))
        places.append(f"{processor} on {days} at {revisions}")
    return f"Measured with onnxruntime {runtime} on " + "; ".join(places) + "."


def ratio(row: dict[str, Any], other: str = "runtime") -> float:
    """Our time as a part of another's; not a number where that failed."""
    return float(row["ms"]["graphopt"] / row["ms"].get(other, math.nan))


def stamped(row: dict[str, Any], old: dict[str, Any] | None, here: dict[str, Any]) -> dict[str, Any]:
    """A row with where and of what it was measured, and how it compared when it was measured before.

    Args:
        row: what was measured.
        old: the row that it replaces.
        here: the machine, as `results.machine` states it.
    """
    row |= {"revision": here["revision"], "processor": here["processor"], "day": here["day"]}
    if old is not None and "ms" in old and "ms" in row and old.get("processor", here["processor"]) == here["processor"]:
        row["before"] = old["before"] if old["revision"] == here["revision"] and "before" in old else ratio(old)
    return row


def is_new(row: dict[str, Any] | None, here: dict[str, Any]) -> bool:
    """Whether a row was measured here at this revision."""
    return row is not None and row.get("processor") == here["processor"] and row["revision"] == here["revision"]


SLOWER = 1.03
"""What takes so much longer than when it was measured before is listed first."""


def slower_than_before(rows: list[dict[str, Any]], named: tuple[str, ...] = ("network",)) -> str:
    """A table of the rows whose share of the runtime's time has grown, the worst first; nothing where none has.

    Args:
        rows: what was measured.
        named: the keys of a row that say what it is, beside its processor and threads.
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
