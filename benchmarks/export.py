"""Export the zoo, one process per model and dress: `python -m benchmarks export`.

Each export is checked: the outputs of onnxruntime, with its optimizer off, against those of torch. Failed exports are
recorded with the reason in `results/export.json`, never silently left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.zoo import DRESSES, Entry, select

HERE = Path(__file__).resolve().parent
MODELS = HERE / "models"


def model_path(dress: str, name: str) -> Path:
    """The path of an export."""
    return MODELS / dress / f"{name}.onnx"


def record_path(dress: str, name: str) -> Path:
    """The path of the record of one export, also of a failed one."""
    return MODELS / dress / f"{name}.json"


def exported(dress: str | None = None) -> Iterator[tuple[str, str, Path]]:
    """The exports on disk as (dress, name, path), in the order of the zoo."""
    for wanted in DRESSES if dress is None else (dress,):
        for entry in select():
            path = model_path(wanted, entry.name)
            if path.exists():
                yield wanted, entry.name, path


def export_all(names: list[str] | None, dresses: list[str], jobs: int, *, force: bool, limit: float) -> None:
    """Export the missing models, `jobs` at a time, with `limit` seconds each."""
    todo = []
    for entry in select(names):
        wanted = [dress for dress in dresses if dress in entry.dresses]
        todo += [(dress, entry.name) for dress in wanted if force or not record_path(dress, entry.name).exists()]
    with ThreadPoolExecutor(jobs) as pool:
        for record in pool.map(lambda item: _spawn(*item, limit), todo):
            print(record["dress"], record["name"], record.get("failed") or f"{record['seconds']} s", flush=True)
    write_summary()


def _spawn(dress: str, name: str, limit: float) -> dict[str, Any]:
    record: dict[str, Any] = {"dress": dress, "name": name}
    command = [sys.executable, "-m", "benchmarks.export", dress, name]
    path = record_path(dress, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, cwd=HERE.parent,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
        if path.exists():
            return json.loads(path.read_text())
        lines = done.stderr.strip().splitlines() or ["no message"]
        record["failed"] = f"exit code {done.returncode}: {lines[-1][:300]}"
    except subprocess.TimeoutExpired:
        record["failed"] = f"no result in {limit:.0f} s"
    model_path(dress, name).unlink(missing_ok=True)
    path.write_text(json.dumps(record, indent=1))
    return record


def write_summary() -> None:
    """Collect the records of all exports in one file, which is committed."""
    records = []
    for entry in select():
        for dress in entry.dresses:
            path = record_path(dress, entry.name)
            records.append(
                json.loads(path.read_text())
                if path.exists()
                else {"dress": dress, "name": entry.name, "failed": "not exported yet"}
            )
    target = HERE / "results" / "export.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(records, indent=1) + "\n")


def export_one(entry: Entry, dress: str) -> dict[str, Any]:
    """Build, export, scrub and check one model; returns its record."""
    import onnx
    import torch

    from benchmarks.weights import make_inputs, season

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        net = season(entry.build(), entry)
        inputs = make_inputs(entry.inputs, batch=2 if entry.dynamic else 1, seed=4)
        expected = net(*inputs)
        path = model_path(dress, entry.name)
        start = time.perf_counter()
        with _workaround(entry):
            _run_exporter(net, inputs, entry, dress, path)
        seconds = time.perf_counter() - start
    model = onnx.load(path)
    scrub(model)
    onnx.save(model, path)
    error, spread = _compare(path, entry, inputs, expected)
    return {
        "dress": dress, "name": entry.name, "origin": entry.origin, "nodes": len(model.graph.node),
        "opset": {item.domain or "ai.onnx": item.version for item in model.opset_import},
        "functions": len(model.functions), "bytes": path.stat().st_size, "seconds": round(seconds, 1),
        "relative_error": float(f"{error:.2g}"), "output_std": float(f"{spread:.3g}"), "torch": torch.__version__,
    }  # fmt: skip


def _run_exporter(net: Any, inputs: tuple[Any, ...], entry: Entry, dress: str, path: Path) -> None:
    import torch

    names = [spec.name for spec in entry.inputs]
    options: dict[str, Any] = {"input_names": names, "output_names": ["output"]}
    if entry.opset:
        options["opset_version"] = entry.opset
    if dress == "ts":
        if entry.dynamic:
            options["dynamic_axes"] = {spec.name: dict(spec.symbols) for spec in entry.inputs}
        if entry.unfused:
            options["training"] = torch.onnx.TrainingMode.PRESERVE
            options["do_constant_folding"] = False
        torch.onnx.export(net, inputs, str(path), dynamo=False, **options)
        return
    if entry.dynamic:
        symbols = {name: torch.export.Dim(name, min=1, max=128) for name in ("batch", "sequence")}
        options["dynamic_shapes"] = tuple(
            {axis: symbols[symbol] for axis, symbol in spec.symbols} for spec in entry.inputs
        )
    program = torch.onnx.export(net, inputs, dynamo=True, optimize=dress == "dynamo", **options)
    assert program is not None
    program.save(str(path), external_data=False)


@contextlib.contextmanager
def _workaround(entry: Entry) -> Iterator[None]:
    """Use the mathematical attention: the fused CPU kernel cannot be exported."""
    import torch

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield


def scrub(model: Any) -> None:
    """Remove the paths of the exporting machine from the exporter's metadata."""
    root, site = str(HERE.parent) + "/", str(Path(sys.prefix)) + "/"
    for graph in (model.graph, *model.functions):
        for node in graph.node:
            for item in node.metadata_props:
                if root in item.value or site in item.value:
                    item.value = item.value.replace(root, "").replace(site, "")


def _compare(path: Path, entry: Entry, inputs: tuple[Any, ...], expected: Any) -> tuple[float, float]:
    import numpy as np
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    feed = {spec.name: x.numpy() for spec, x in zip(entry.inputs, inputs, strict=True)}
    feed = {item.name: feed[item.name] for item in session.get_inputs()}
    wanted = expected if isinstance(expected, (tuple, list)) else (expected,)
    error = spread = 0.0
    for got, want in zip(session.run(None, feed), wanted, strict=True):
        reference = want.numpy()
        if not np.isfinite(reference).all() or not np.isfinite(got).all():
            raise ValueError("the outputs are not finite")
        spread = max(spread, float(reference.std()))
        error = max(error, float(np.abs(got - reference).max() / (np.abs(reference).max() + 1e-12)))
    if error > 5e-3 or not 1e-4 < spread < 1e4:
        raise ValueError(f"relative error {error:.2g} against torch, output spread {spread:.2g}")
    return error, spread


def main(dress: str, name: str) -> None:
    """Export one model in this process."""
    record = export_one(select([name])[0], dress)
    record_path(dress, name).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
