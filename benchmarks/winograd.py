"""The gain of Winograd convolutions: whole models, against the runtime's best level and layout alone.

Each model runs in a separate process, in three alternating variants: the export under ORT_ENABLE_ALL, level `all`, and
level `all` with `numerics="fast"`, which adds Winograd's algorithm; the latter two with the runtime's optimizer off.
On one thread CPU time counts, which equals wall-clock time on an idle machine and excludes other processes on a busy
one; on more threads wall-clock time. Ratios are taken round by round; beside their median is the ratio of the least
times.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.export import model_path
from benchmarks.skeleton import sample_inputs
from benchmarks.table import grid

PAGE = results.HERE.parent / "docs" / "winograd.md"
BEGIN, END = "<!-- figures of `python -m benchmarks winograd` -->", "<!-- end of figures -->"
MODELS = ("vgg11_bn", "resnet18", "resnet50", "inception_v3", "densenet121", "repvgg_a0", "dla34", "unet")
VARIANTS = ("raw", "layout", "winograd")
_LARGE = 2e8
PASS = "convert_conv_to_winograd"


def run(models: list[str] | None, threads: tuple[int, ...], budget: float) -> None:
    """Measure models, each in a separate process, and write the page; each result is stored at once."""
    rows: dict[str, Any] = {row["model"]: row for row in (results.load("winograd") or {"data": []})["data"]}
    for name in models or MODELS:
        command = [sys.executable, "-m", "benchmarks.winograd", name, json.dumps(threads), str(budget)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=results.HERE.parent, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
        rows[name] = json.loads(lines[-1][2:]) if lines else {"model": name, "failed": done.stderr.strip()[-300:]}
        results.save("winograd", list(rows.values()))
        print(_cells(rows[name]), flush=True)
    write()


def measure(name: str, threads: list[int], budget: float) -> dict[str, Any]:
    """One model: converted layers, differences, sizes, session starts, times."""
    with tempfile.TemporaryDirectory() as folder:
        files, report = _prepare(model_path("ts", name), Path(folder))
        import onnx

        feed = sample_inputs(f"ts/{name}", onnx.load(files["raw"]), batch=1)
        wanted = _open(files["raw"], "none", 1).run(None, feed)
        report["difference"] = {}
        for variant in VARIANTS[1:]:
            got = _open(files[variant], "none", 1).run(None, feed)
            report["difference"][variant] = max(_difference(*pair) for pair in zip(got, wanted, strict=True))
        report["start_ms"] = _starts(files)
        report["times"] = {str(count): _times(files, feed, count, budget) for count in threads}
    return {"model": name, **report}


def _prepare(path: Path, folder: Path) -> tuple[dict[str, Path], dict[str, Any]]:
    """The files of the variants, and the conversions."""
    from graphopt import PassManager

    files, report = {"raw": path}, {}
    for variant, numerics in (("layout", "rounding"), ("winograd", "fast")):
        files[variant] = folder / f"{variant}.onnx"
        begin = time.perf_counter()
        result = PassManager("all", numerics=numerics).run(str(path))
        report[f"{variant}_seconds"] = time.perf_counter() - begin
        result.save(str(files[variant]))
        report["layers"] = Counter(event.detail for event in result.events if event.rule == PASS)
    report["load"] = os.getloadavg()[0]
    report["bytes"] = {variant: _bytes(file) for variant, file in files.items()}
    return files, report


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, path.with_name(path.name + ".data")) if file.exists())


def _open(path: Path, level: str, threads: int) -> Any:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    # The threads of the previous session must not spin on the cores of the next one.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    levels = {"none": "ORT_DISABLE_ALL", "all": "ORT_ENABLE_ALL"}
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, levels[level])
    return ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def _level(variant: str) -> str:
    return "all" if variant == "raw" else "none"


def _difference(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got.astype(np.float64) - wanted).max() / max(float(np.abs(wanted).max()), 1e-30))


def _starts(files: dict[str, Path]) -> dict[str, float]:
    """Least milliseconds until a session is ready; only once for large models."""
    rounds = 1 if _bytes(files["raw"]) > _LARGE else 3
    times: dict[str, list[float]] = {variant: [] for variant in files}
    for _ in range(rounds):
        for variant, path in files.items():
            begin = time.perf_counter()
            _open(path, _level(variant), 1)
            times[variant].append((time.perf_counter() - begin) * 1e3)
    return {variant: min(values) for variant, values in times.items()}


def _times(files: dict[str, Path], feed: dict[str, np.ndarray], threads: int, budget: float) -> dict[str, Any]:
    """Milliseconds of every variant, and its time relative to the raw model's."""
    sessions = {variant: _open(path, _level(variant), threads) for variant, path in files.items()}
    taken: dict[str, list[float]] = {variant: [] for variant in files}
    order, shuffle = list(files), random.Random(0)
    clock = time.thread_time if threads == 1 else time.perf_counter
    stop = time.perf_counter() + budget
    while len(taken["raw"]) < 7 or (time.perf_counter() < stop and len(taken["raw"]) < 100):
        shuffle.shuffle(order)
        for variant in order:
            sessions[variant].run(None, feed)
            begin = clock()
            sessions[variant].run(None, feed)
            taken[variant].append((clock() - begin) * 1e3)
    raw = taken["raw"]
    return {
        variant: {
            "median_ms": median(values),
            "least_ms": min(values),
            "median_ratio": median(own / base for own, base in zip(values, raw, strict=True)),
            "least_ratio": min(values) / min(raw),
            "rounds": len(values),
        }
        for variant, values in taken.items()
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if "failed" in row:
        return row["model"], row["failed"]
    layers = ", ".join(f"{count} {kind.split(',')[0]})" for kind, count in sorted(row["layers"].items())) or "none"
    found = [row["model"], layers]
    for times in row["times"].values():
        raw, layout, winograd = (times[variant] for variant in VARIANTS)
        found.append(f"{raw['least_ms']:.1f} ms")
        found.append(f"{layout['least_ratio']:.2f} ({layout['median_ratio']:.2f})")
        found.append(f"{winograd['least_ratio']:.2f} ({winograd['median_ratio']:.2f})")
    return tuple(found)


def _second(row: dict[str, Any]) -> tuple[str, ...]:
    sizes, starts, difference = row["bytes"], row["start_ms"], row["difference"]
    return (
        row["model"],
        *(f"{difference[variant]:.1e}" for variant in VARIANTS[1:]),
        " / ".join(f"{sizes[variant] / 1e6:.0f}" for variant in VARIANTS),
        " / ".join(f"{starts[variant]:.0f}" for variant in VARIANTS),
    )


def write() -> None:
    """Put the figures into docs/winograd.md."""
    kept = results.load("winograd")
    assert kept is not None, "nothing is measured yet"
    rows = [row for row in kept["data"] if "failed" not in row]
    counts = list(rows[0]["times"])
    head = ["model", "layers"]
    for count in counts:
        head += [f"raw, {count} thread{'s' if count != '1' else ''}", "layout", "Winograd"]
    machine = kept["machine"]
    text = (
        f"{machine['processor']}, {machine['cores']} cores, onnxruntime {machine['packages']['onnxruntime']}, "
        f"{machine['day']}; other processes kept the machine busy, load {min(row['load'] for row in rows):.0f} to "
        f"{max(row['load'] for row in rows):.0f}.\n\n"
        + grid(tuple(head), [_cells(row) for row in rows])
        + "\n\n"
        + grid(
            ("model", "difference, layout", "difference, Winograd", "MB raw / layout / Winograd", "start, ms"),
            [_second(row) for row in rows],
        )
    )
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main(name: str, threads: str, budget: str) -> None:
    """The measured process."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("@@" + json.dumps(measure(name, json.loads(threads), float(budget))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
