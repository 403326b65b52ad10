"""Quantized networks: their speed, and the deviation from their own outputs.

Each network is quantized with random weights, as in `benchmarks.schemes`. The runtime's result at ORT_ENABLE_ALL
alternates with that of level `all` under ORT_DISABLE_ALL, in one process, on one thread, each run after an untimed one;
`benchmarks.side_by_side` describes the timing. Deviations are from the quantized network itself with the runtime's
optimizer off, relative to the largest output: for both, the maximum and the root mean square.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from benchmarks import results
from benchmarks.export import MODELS
from benchmarks.quantized_page import TIES, line, write
from benchmarks.schemes import quantized
from benchmarks.side_by_side import deviation, is_new, least, openvino, runs_of, stamped
from benchmarks.skeleton import load_skeleton, sample_inputs
from benchmarks.ties import ties
from graphopt import optimize

NETWORKS = (
    "mobilenetv2_100", "resnet18", "squeezenet1_1", "googlenet", "shufflenet_v2_x1_0", "mobilenetv3_large_100",
    "efficientnet_b0", "regnety_002", "convnext_atto", "unet", "yolo_pan", "vit_tiny_patch16_224", "bert",
    "made/mobilenet_v1", "made/csp_darknet", "made/ssd_mobile", "made/feature_pyramid", "made/cbam",
    "made/style_transfer", "made/fast_scnn", "made/face_embedding", "made/coatnet", "made/swin_v2", "made/mlp_mixer",
    "made/perceiver", "made/speech_encoder", "made/contrib_encoder",
)  # fmt: skip
"""Skeletons of the TorchScript exporter, and networks that `benchmarks.architectures` writes (`made/NAME`)."""


def network(name: str, scheme: str) -> tuple[Path, dict[str, Any]]:
    """The file of a quantized network, created if missing, and inputs for it."""
    path = MODELS / "quantized" / f"{name.replace('/', '_')}.{scheme}.onnx"
    key = name if "/" in name else f"ts/{name}"
    source = load_skeleton(key)
    feed = sample_inputs(key, source, batch=1)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(quantized(source, scheme, feed), path)
    return path, feed


@dataclass(frozen=True, slots=True)
class Prepared:
    """A quantized network ready to be timed.

    Attributes:
        name: the network.
        scheme: its quantization scheme.
        path: its file.
        converted: the result of level `all`.
        basic: the result of level `basic`; None if unused.
        feed: its inputs.
        seconds: the time of level `all`.
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
    converted, basic = path.with_suffix(".all.onnx"), path.with_suffix(".basic.onnx") if openvino() else None
    start = time.perf_counter()
    onnx.save(optimize(onnx.load(path), level="all"), converted)
    seconds = time.perf_counter() - start
    if basic is not None:
        onnx.save(optimize(onnx.load(path), level="basic"), basic)
    return Prepared(name, scheme, path, converted, basic, feed, seconds)


def measure(network: Prepared, budget: float, threads: int) -> dict[str, Any]:
    """One network: least milliseconds, and deviations."""
    runs = runs_of(network.path, network.converted, network.basic, network.feed, threads)
    wanted = runs["off"]()
    far = {key: deviation(wanted, run()) for key, run in runs.items() if key != "off"}
    named = {"network": network.name, "scheme": network.scheme, "threads": threads}
    return {**named, "seconds": network.seconds, "ms": least(runs, budget, threads), "deviation": far}


def run(networks: Iterable[str], schemes: Iterable[str], budget: float, threads: int, *, fresh: bool = True) -> None:
    """Measure networks, store each result at once, and write the page; results of this revision stay unless `fresh`."""
    kept, here = (results.load("quantized") or {"data": []})["data"], results.machine()
    rows = {(row["network"], row["scheme"], row.get("threads", 1), row.get("processor")): row for row in kept}
    for scheme in schemes:
        for name in networks:
            old = rows.get((name, scheme, threads, here["processor"]))
            if is_new(old, here) and not fresh:
                continue
            try:
                row = measure(prepare(name, scheme), budget, threads)
            except Exception as error:  # of the quantizer or a session; it must not prevent the other networks
                row = {"network": name, "scheme": scheme, "threads": threads, "failed": str(error)[:300]}
            row |= {key: old[key] for key in TIES if old is not None and key in old}
            rows[name, scheme, threads, here["processor"]] = stamped(row, old, here)
            results.save("quantized", list(rows.values()))
            print(line(row), flush=True)
    write()


def count_ties(networks: Iterable[str], schemes: Iterable[str]) -> None:
    """Count where single operators round differently, for networks that were measured on this machine."""
    rows, here = (results.load("quantized") or {"data": []})["data"], results.machine()["processor"]
    for row in rows:
        if "failed" in row or row.get("processor") != here:
            continue
        if row["network"] in networks and row["scheme"] in schemes:
            path, feed = network(row["network"], row["scheme"])
            for key in _counted(row["scheme"]):
                row[key] = ties(onnx.load(path), feed, runtime=key == TIES[1])
            results.save("quantized", rows)
            print(row["network"], row["scheme"], *(row.get(key) for key in TIES), flush=True)
    write()


def _counted(scheme: str) -> Iterable[str]:
    """Which counts are made: none of the runtime if activations are signed.

    It then optimizes a part differently from the whole network, in which it makes those activations unsigned that it
    quantizes itself.
    """
    return TIES[:1] if scheme.startswith("s8") else TIES
