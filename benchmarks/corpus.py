"""The cost of an audit of many models: thousands of small models, with and without Dask, and a store of 100,000."""

from __future__ import annotations

import itertools
import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
import psutil

from benchmarks.skeleton import load_skeleton
from benchmarks.skeleton import names as skeleton_names
from graphopt.audit.corpus import CorpusSettings, Record, Reference, Store, run_corpus, running
from graphopt.audit.corpus.fleet import Fleet
from graphopt.audit.corpus.pool import Engine, WorkerPool
from graphopt.audit.corpus.report import campaign_of, report_of
from graphopt.audit.extraction import around, extract, typed
from graphopt.errors import GraphoptError
from graphopt.fuzzing.models import sample
from graphopt.ir import Model
from graphopt.testing import Case, cases

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
COUNTING = CorpusSettings(timed=False, seconds=30.0)
_LARGEST = 1 << 18
_WINDOW = 6
_MOST_ELEMENTS = 1 << 16
"""Of an input or output: a subgraph on a large image runs for seconds without the runtime's optimizations."""
_IN_FLIGHT = 300


def small_models(folder: Path, count: int) -> int:
    """Write small models: golden cases, generated ones, and parts of the skeletons in turn; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    made = len(list(folder.glob("*.onnx")))
    for number, model in enumerate(_models()):
        if made >= count:
            break
        path = folder / f"{number:05}.onnx"
        if not path.exists() and model.ByteSize() <= _LARGEST:
            path.write_bytes(model.SerializeToString())
            made += 1
    return made


def _models() -> Iterator[onnx.ModelProto]:
    """One model of each source in turn, so that any number of them is a mixture."""
    sources = [_golden(), _generated(), _cut()]
    while sources:
        for source in list(sources):
            model = next(source, None)
            if model is None:
                sources.remove(source)
            else:
                yield model


def _golden() -> Iterator[onnx.ModelProto]:
    by_pass = [cases(folder) for folder in sorted(GOLDEN.iterdir())]
    for place in range(max(map(len, by_pass))):
        for group in by_pass:
            if place < len(group) and place < 8:
                yield Case.read(group[place]).model()


def _generated() -> Iterator[onnx.ModelProto]:
    for seed in itertools.count():
        found = sample(f"corpus/{seed}")
        if found is not None:
            yield found.model


def _cut() -> Iterator[onnx.ModelProto]:
    for key in skeleton_names():
        yield from filter(_is_small, _windows(load_skeleton(key)))


def _is_small(model: onnx.ModelProto) -> bool:
    """Whether inputs are few numbers of static shapes: for others the search for valid inputs takes seconds."""
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    return all(each.type.tensor_type.elem_type in floats for each in model.graph.input) and all(
        0 < math.prod(dim.dim_value for dim in each.type.tensor_type.shape.dim) <= _MOST_ELEMENTS
        for each in (*model.graph.input, *model.graph.output)
    )


def _windows(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    if proto.ByteSize() > 120 << 20:
        return
    model = typed(Model.load(proto))
    nodes = list(model.graph)
    for node in nodes[:: max(len(nodes) // 24, 1)]:
        try:
            yield extract(model, around(model.graph, [node], _WINDOW))
        except GraphoptError:
            continue  # a value at the cut has no known type


@dataclass(slots=True)
class Load:
    """The resources that a run used.

    Attributes:
        seconds: wall-clock time.
        cpu: CPU time of all processes that ended.
        part: the finished part of the run.
        steps: at each eighth of the run: the part, the wall-clock and CPU time of all processes so far, resident bytes
            of this process and of all.
    """

    seconds: float = 0.0
    cpu: float = 0.0
    part: float = 0.0
    steps: list[tuple[float, float, float, int, int]] = field(default_factory=list)

    def progress(self, what: str, part: float) -> None:
        """Record the progress that the run reports."""
        self.part = part

    def __str__(self) -> str:
        lines = [f"{self.seconds:.1f} s, {self.cpu:.1f} s of processors"]
        for part, clock, cpu, own, family in self.steps:
            lines.append(
                f"    {part:6.1%}: {clock:7.1f} s, {cpu:7.1f} s of processors, own {own >> 20} MiB, "
                f"family {family >> 20} MiB"
            )  # fmt: skip
        return "\n".join(lines)


@contextmanager
def watched(steps: int = 8) -> Iterator[Load]:
    """Measure a run and its progress."""
    load, stop = Load(), threading.Event()
    me = psutil.Process()
    used: dict[int, float] = {}

    def look() -> None:
        began = time.perf_counter()
        while not stop.wait(0.5):
            total = 0
            for each in (me, *me.children(recursive=True)):
                try:
                    times = each.cpu_times()
                    used[each.pid] = times.user + times.system
                    total += each.memory_info().rss
                except psutil.Error:
                    continue
            if load.part >= (len(load.steps) + 1) / steps:
                now = time.perf_counter() - began
                load.steps.append((load.part, now, sum(used.values()), me.memory_info().rss, total))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    began, before = time.perf_counter(), _cpu()
    try:
        yield load
    finally:
        load.seconds, load.cpu = time.perf_counter() - began, _cpu() - before
        stop.set()
        thread.join()


def _cpu() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


def scale(folder: Path, counts: list[int], jobs: int, *, pool: bool = False) -> None:
    """Audit growing numbers of the models, each time from an empty store; then one percent more."""
    engine: Callable[[], Engine] = (lambda: WorkerPool(jobs)) if pool else (lambda: Fleet(jobs))
    small_models(folder, max(counts))
    files = sorted(map(str, folder.glob("*.onnx")))
    for count in counts:
        store = folder / f"store-{count}{'-pool' if pool else ''}"
        store.unlink(missing_ok=True)
        with watched() as load:
            found = run_corpus(files[:count], store, COUNTING, engine=engine, progress=load.progress)
        rate = 3600 * found.new / load.seconds
        print(f"{count} files: {found}", flush=True)
        print(
            f"    {rate:,.0f} models an hour, {store.stat().st_size / max(found.models, 1):,.0f} B a model; {load}",
            flush=True,
        )
    more = [*files[: counts[-1]], *_others(folder, counts[-1] // 100)]
    with watched() as load:
        found = run_corpus(more, store, COUNTING, engine=engine)
    print(f"one percent more: {found}\n    {load}", flush=True)
    began = time.perf_counter()
    with Store(store) as opened:
        report = report_of(opened, campaign_of(opened))
    print(f"report: {time.perf_counter() - began:.2f} s; graphopt right on all: {report.ok}")


def _others(folder: Path, count: int) -> list[str]:
    """Models that differ from the existing ones by a number in their metadata."""
    place = folder / "more"
    place.mkdir(exist_ok=True)
    made = []
    for number, path in enumerate(sorted(folder.glob("*.onnx"))[:count]):
        model = onnx.load(path)
        model.metadata_props.add(key="number", value=f"{number} {time.time()}")
        made.append(str(place / path.name))
        onnx.save(model, made[-1])
    return made


# -- the engine and the store alone


def nothing(reference: Any, record: Record) -> Record:
    """A task that takes no time and returns the record of a real one."""
    return replace(record, model=reference)


def overhead(store: Path, count: int, jobs: int) -> None:
    """The cost of submitting a task and receiving its record, without the task.

    Dask's scheduler runs in this process: its time limits the number of tasks per second.
    """
    with Store(store) as opened:
        record = next(each for each in opened.records(campaign_of(opened)) if each.audit is not None)
    for name, make in (("pool", lambda: WorkerPool(jobs)), ("Dask", lambda: Fleet(jobs))):
        engine = make()
        began, before = time.perf_counter(), time.process_time()
        waiting = handed = 0
        while handed < count or waiting:
            while handed < count and waiting < _IN_FLIGHT:
                engine.submit(handed, nothing, f"{handed:064}", record)
                handed, waiting = handed + 1, waiting + 1
            waiting -= engine.next(5.0) is not None
        seconds, cpu = time.perf_counter() - began, time.process_time() - before
        engine.close()
        print(f"{name}: {count} tasks, {1e3 * seconds / count:.2f} ms each, {1e3 * cpu / count:.2f} ms of this process")


def simulate(store: Path, folder: Path, counts: list[int]) -> None:
    """Stores of many models: copies of real records under other digests."""
    with Store(store) as opened:
        records = [each for _, each in zip(range(500), opened.records(campaign_of(opened)), strict=False)]
    for count in counts:
        path = folder / f"simulated-{count}"
        path.unlink(missing_ok=True)
        began = time.process_time()
        with Store(path, write=True) as opened:
            campaign = opened.campaign(COUNTING, {"graphopt": "simulated"}, "simulated")
            for number in range(count):
                opened.put(
                    campaign, replace(records[number % len(records)], model=f"{number:064x}", name=f"/z/{number}")
                )
        written = time.process_time() - began
        with watched() as load, Store(path) as opened:
            report_of(opened, campaign_of(opened))
        size = path.stat().st_size / count
        print(f"{count:,} records: {1e6 * written / count:.0f} us each to keep, {size:,.0f} B each; report {load}")
        os.unlink(path)


# -- a run of very many models, without the models


_REAL = "GRAPHOPT_REAL_RECORDS"
_THREADS = 32


@lru_cache(maxsize=1)
def _real() -> list[Record]:
    with Store(os.environ[_REAL]) as opened:
        return [each for _, each in zip(range(200), opened.records(campaign_of(opened)), strict=False)]


def replayed(reference: Reference, settings: CorpusSettings, disk: int | None = None) -> Record:
    """A task that takes no time: returns a real model's record under the name of this one."""
    real = _real()
    record = real[int(reference.digest[:8], 16) % len(real)]
    return replace(record, model=reference.digest, name=reference.name, versions="")


def rehearse(store: Path, folder: Path, count: int, jobs: int, *, pool: bool = False) -> None:
    """A whole run of very many models whose audits take no time: names, digests, tasks, records, all on this machine.

    Dask's scheduler is a separate process, so that its time and memory are known separately. Each worker has threads
    for as many tasks as a larger fleet would have in progress.
    """
    files = folder / "tiny"
    for number in range(count):
        place = files / f"{number // 1000:04}"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{number % 1000:03}.onnx"
        if not path.exists():
            path.write_bytes(b"%d" % number)
    os.environ[_REAL] = str(store.absolute())
    running.audit_one = replayed
    target = folder / f"rehearsed-{count}{'-pool' if pool else ''}"
    target.unlink(missing_ok=True)
    if pool:
        _rehearsed(files, target, lambda: WorkerPool(jobs), {})
        return
    address = "tcp://127.0.0.1:18786"
    command = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen(
        [*command, "scheduler", "--host", "127.0.0.1", "--port", "18786", "--no-dashboard"], stderr=subprocess.DEVNULL
    )
    workers = [
        subprocess.Popen(
            [*command, "worker", address, "--nthreads", str(_THREADS), "--no-dashboard", "--memory-limit", "0"],
            stderr=subprocess.DEVNULL,
        )
        for _ in range(jobs)
    ]
    try:
        time.sleep(5.0)  # the scheduler is not listening earlier
        apart = {"scheduler": scheduler.pid, **{f"worker {n}": each.pid for n, each in enumerate(workers)}}
        _rehearsed(files, target, lambda: Fleet(scheduler=address), apart)
    finally:
        for each in (*workers, scheduler):
            each.terminate()
            each.wait()


def _rehearsed(files: Path, store: Path, engine: Callable[[], Engine], apart: dict[str, int]) -> None:
    began, last = time.perf_counter(), 0
    family = {"run": psutil.Process(), **{name: psutil.Process(pid) for name, pid in apart.items()}}

    def told(what: str, part: float) -> None:
        nonlocal last
        if int(16 * part) > last:
            last = int(16 * part)
            parts = [f"{part:6.1%} {time.perf_counter() - began:7.1f} s"]
            for name, process in family.items():
                # A worker is the child of its nanny.
                lines = [process, *(process.children() if name.startswith("worker") else [])]
                cpu = sum(sum(each.cpu_times()[:2]) for each in lines)
                parts.append(f"{name} {cpu:.1f} s {sum(each.memory_info().rss for each in lines) >> 20} MiB")
            print(", ".join(parts), flush=True)

    found = run_corpus([str(files)], store, COUNTING, engine=engine, progress=told)
    print(f"{found}; {store.stat().st_size / max(found.new, 1):,.0f} B a model", flush=True)
    began = time.perf_counter()
    again = run_corpus([str(files)], store, COUNTING, engine=engine)
    print(f"run again: {again.reused:,} known, {again.new} new; {time.perf_counter() - began:.1f} s", flush=True)
