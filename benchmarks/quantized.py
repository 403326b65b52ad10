"""Quantized networks: how fast they run, and how far from their own numbers.

Each network is quantized with random weights, as `benchmarks.schemes` says. What the runtime makes of it at
ORT_ENABLE_ALL runs in turn with level `all` under ORT_DISABLE_ALL, in one process, on one thread, each run after one
that is not timed; times are the least, and the process's own, which other programs add little to. Deviations are from
the quantized network itself with the runtime's optimizer off, as shares of the largest output: of both, the greatest
and the root of the mean square.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import results
from benchmarks.export import MODELS
from benchmarks.quantized_page import line, write
from benchmarks.schemes import quantized
from benchmarks.skeleton import load_skeleton, sample_inputs
from benchmarks.ties import ties
from graphopt import optimize
from graphopt.audit.bench import Variant, open_variant

NETWORKS = (
    "mobilenetv2_100", "resnet18", "squeezenet1_1", "googlenet", "shufflenet_v2_x1_0", "mobilenetv3_large_100",
    "efficientnet_b0", "regnety_002", "convnext_atto", "unet", "yolo_pan", "vit_tiny_patch16_224", "bert",
)  # fmt: skip
_LEAST_ROUNDS = 7


def network(name: str, scheme: str) -> tuple[Path, dict[str, Any]]:
    """The file of a quantized network, made when there is none yet, and inputs for it."""
    path = MODELS / "quantized" / f"{name}.{scheme}.onnx"
    source = load_skeleton(f"ts/{name}")
    feed = sample_inputs(f"ts/{name}", source, batch=1)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(quantized(source, scheme, feed), path)
    return path, feed


@dataclass(frozen=True, slots=True)
class Prepared:
    """A quantized network ready to be timed.

    Attributes:
        name: the network.
        scheme: how it is quantized.
        path: its file.
        converted: what level `all` makes of it.
        basic: what level `basic` makes of it; None where nothing reads that.
        feed: its inputs.
        seconds: what level `all` took.
    """

    name: str
    scheme: str
    path: Path
    converted: Path
    basic: Path | None
    feed: dict[str, Any]
    seconds: float


def prepare(name: str, scheme: str) -> Prepared:
    """Make the files of a network."""
    path, feed = network(name, scheme)
    converted, basic = path.with_suffix(".all.onnx"), path.with_suffix(".basic.onnx") if _openvino() else None
    start = time.perf_counter()
    onnx.save(optimize(onnx.load(path), level="all"), converted)
    seconds = time.perf_counter() - start
    if basic is not None:
        onnx.save(optimize(onnx.load(path), level="basic"), basic)
    return Prepared(name, scheme, path, converted, basic, feed, seconds)


def measure(network: Prepared, budget: float) -> dict[str, Any]:
    """One network: milliseconds at their least, and deviations."""
    runs: dict[str, Callable[[], list[Any]]] = {
        "off": _runtime(network.path, "none", network.feed),
        "graphopt": _runtime(network.converted, "none", network.feed),
    }
    with contextlib.suppress(Exception):  # ENABLE_ALL fails on some models whose parameters have shape [1]
        runs["runtime"] = _runtime(network.path, "all", network.feed)
    if network.basic is not None:
        for key, path in (("openvino", network.path), ("openvino basic", network.basic)):
            with contextlib.suppress(Exception):  # it refuses some models
                runs[key] = _other(path, network.feed)
    wanted = runs["off"]()
    far = {key: deviation(wanted, run()) for key, run in runs.items() if key != "off"}
    ms = _least(runs, budget)
    named = {"network": network.name, "scheme": network.scheme, "revision": results.machine()["revision"]}
    return {**named, "seconds": network.seconds, "ms": ms, "deviation": far}


def _runtime(path: Path, level: str, feed: dict[str, Any]) -> Callable[[], list[Any]]:
    session = open_variant(Variant(level, str(path), level), 1)
    return lambda: session.run(None, feed)


def _openvino() -> Any:
    """OpenVINO where it is installed, None elsewhere."""
    try:
        import openvino
    except ImportError:
        return None
    return openvino


def _other(path: Path, feed: dict[str, Any]) -> Callable[[], list[Any]]:
    """A network in OpenVINO, in floats of 32 bits, on one thread."""
    core = _openvino().Core()
    core.set_property({"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    request = core.compile_model(core.read_model(path), "CPU").create_infer_request()

    def run() -> list[Any]:
        request.infer(feed)
        return [tensor.data for tensor in request.output_tensors]

    run()
    return run


def _least(runs: dict[str, Callable[[], list[Any]]], budget: float) -> dict[str, float]:
    least = dict.fromkeys(runs, math.inf)
    stop, rounds = time.perf_counter() + budget, 0
    while rounds < _LEAST_ROUNDS or time.perf_counter() < stop:
        for key, run in runs.items():
            if key == "off" and rounds >= _LEAST_ROUNDS:
                continue
            run()
            start = time.process_time()
            run()
            least[key] = min(least[key], (time.process_time() - start) * 1e3)
        rounds += 1
    return least


def deviation(wanted: list[Any], got: list[Any]) -> tuple[float, float]:
    """The greatest difference and the root of the mean square, as shares of each output's greatest number."""
    greatest = square = 0.0
    for one, two in zip(wanted, got, strict=True):
        difference = np.abs(one.astype(np.float64) - two) / max(float(np.abs(one).max(initial=0)), 1e-30)
        greatest = max(greatest, float(difference.max(initial=0)))
        square = max(square, float(np.sqrt(np.mean(difference**2))))
    return greatest, square


def run(networks: Iterable[str], schemes: Iterable[str], budget: float) -> None:
    """Measure networks, keep the results as they come, and write the page."""
    rows = {(row["network"], row["scheme"]): row for row in (results.load("quantized") or {"data": []})["data"]}
    for scheme in schemes:
        for name in networks:
            try:
                row = measure(prepare(name, scheme), budget)
            except Exception as error:  # the quantizer, or a session: the others are measured all the same
                row = {"network": name, "scheme": scheme, "failed": str(error)[:300]}
            rows[name, scheme] = row
            results.save("quantized", list(rows.values()))
            print(line(row), flush=True)
    write()


def count_ties(networks: Iterable[str], schemes: Iterable[str]) -> None:
    """Where single operators round otherwise, added to the results of networks that have been measured."""
    rows = (results.load("quantized") or {"data": []})["data"]
    for row in rows:
        if "failed" not in row and row["network"] in networks and row["scheme"] in schemes:
            path, feed = network(row["network"], row["scheme"])
            row["ties"] = ties(onnx.load(path), feed)
            results.save("quantized", rows)
            print(row["network"], row["scheme"], row["ties"], flush=True)
    write()
