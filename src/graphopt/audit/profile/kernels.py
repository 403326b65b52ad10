"""Kernel times by ONNX Runtime's profiler, of several sessions in interleaved rounds."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphopt.audit.bench import Variant, open_variant
from graphopt.system.files import scratch
from graphopt.system.sessions import kernel_events

_FEWEST_ROUNDS = 3


@dataclass(slots=True)
class Kernel:
    """One node of a running session.

    Attributes:
        name: node name.
        op: operator.
        ms: median time in one run of the model.
        calls: how often it ran in one run of the model.
    """

    name: str
    op: str
    ms: float
    calls: float = 1.0


@dataclass(slots=True)
class Kernels:
    """All nodes of a running session.

    Attributes:
        variant: name of the session's variant.
        kernels: its nodes in the order of execution.
        total: median of the sum of all kernels of a run, in milliseconds.
        run: median time of a whole run as the caller sees it, including the profiler.
    """

    variant: str
    kernels: list[Kernel]
    total: float
    run: float
    saved: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class KernelJob:
    """The sessions to profile.

    Attributes:
        variants: sessions; their optimized graphs are saved beside the first one's file if `save` names a folder.
        feed: inputs.
        threads: intra-op threads.
        rounds: the most interleaved rounds.
        budget: seconds for each variant, after which no further round begins once there are three.
        save: folder for the optimized graphs, or "".
    """

    variants: list[Variant]
    feed: dict[str, Any]
    threads: int = 1
    rounds: int = 15
    budget: float = math.inf
    save: str = ""
    order_seed: int = field(default=0)


def measure_kernels(job: KernelJob) -> list[Kernels]:
    """Profile all variants; runs in a separate process."""
    import time

    with scratch() as folder:
        sessions: dict[str, Any] = {}
        failures: dict[str, str] = {}
        saved = {
            v.name: str(Path(job.save) / f"{v.name.replace(' ', '_')}.onnx") if job.save else "" for v in job.variants
        }
        for number, variant in enumerate(job.variants):
            try:
                session = open_variant(variant, job.threads, profile=folder / f"p{number}", save_as=saved[variant.name])
                session.run(None, job.feed)
                sessions[variant.name] = session
            except Exception as error:  # a native library's exceptions share no base class
                failures[variant.name] = str(error).splitlines()[0][:300]
        runs: dict[str, list[float]] = {each: [] for each in sessions}
        order = list(sessions)
        shuffle = random.Random(job.order_seed)
        end, rounds = time.perf_counter() + job.budget * len(order), 0
        while rounds < job.rounds and (rounds < _FEWEST_ROUNDS or time.perf_counter() < end):
            rounds += 1
            shuffle.shuffle(order)
            for each in order:
                sessions[each].run(None, job.feed)
                begin = time.perf_counter()
                sessions[each].run(None, job.feed)
                runs[each].append((time.perf_counter() - begin) * 1e3)
        found = []
        for variant in job.variants:
            if variant.name in failures:
                found.append(Kernels(variant.name, [], 0.0, 0.0, "", failures[variant.name]))
                continue
            kernels, total = _read(kernel_events(sessions[variant.name]), 1 + 2 * rounds)
            run = statistics.median(runs[variant.name])
            found.append(Kernels(variant.name, kernels, total, run, saved[variant.name]))
    return found


def _read(events: list[dict[str, Any]], runs: int) -> tuple[list[Kernel], float]:
    """Median time of each node over the timed runs (every second one: the others warm the cache)."""
    series: dict[tuple[str, str], list[float]] = {}
    for event in events:
        key = (event["name"], event["args"]["op_name"])
        series.setdefault(key, []).append(event["dur"] / 1e3)
    kernels = []
    sums = [0.0] * runs
    for (name, op), times in series.items():
        if len(times) == runs:
            timed = times[2::2]
            kernels.append(Kernel(name, op, statistics.median(timed)))
            for number, ms in enumerate(times):
                sums[number] += ms
        else:  # in a loop body: the number of calls varies by run
            kernels.append(Kernel(name, op, sum(times) / runs, len(times) / runs))
            sums = [total + sum(times) / runs for total in sums]
    return kernels, statistics.median(sums[2::2]) if runs > 2 else sums[-1]
