"""A model above two gigabytes with external weights: which tools can optimize it, in what time and memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks import results
from benchmarks.synthetic import Builder
from benchmarks.tools import OPTIMIZERS, count_nodes, measure

WIDTH = 4096
LAYERS = 36  # each 64 MiB: 2.25 GiB in all, above the limit of one protobuf message


def write(folder: Path) -> Path:
    """A deep multi-layer perceptron with the no-ops of an export between the layers; returns its path."""
    path = folder / "large.onnx"
    model = _graph(folder / "large.onnx.data")
    path.write_bytes(model.SerializeToString())
    return path


def _graph(weights: Path) -> ModelProto:
    builder = Builder()
    random = np.random.default_rng(0)
    x = builder.input("x", ("n", WIDTH))
    one = builder.weight(1.0)
    with weights.open("wb") as file:
        for layer in range(LAYERS):
            matrix = random.standard_normal((WIDTH, WIDTH), np.float32) * np.float32(WIDTH**-0.5)
            tensor = TensorProto(name=f"matrix{layer}", data_type=TensorProto.FLOAT, dims=matrix.shape)
            tensor.data_location = TensorProto.EXTERNAL
            where = {"location": weights.name, "offset": str(file.tell()), "length": str(matrix.nbytes)}
            for key, value in where.items():
                tensor.external_data.add(key=key, value=value)
            file.write(matrix)
            builder.graph.initializer.append(tensor)
            x = builder.node("Add", builder.node("MatMul", x, tensor.name), builder.noise(WIDTH, scale=0.1))
            x = builder.node("Mul", builder.node("Identity", builder.node("Relu", x)), one)
    builder.output(x, ("n", WIDTH))
    return builder.finish()


def copy(source: Path, folder: Path) -> float:
    """Seconds to copy a model and its weights to the disk: a lower bound for any optimizer."""
    start = time.perf_counter()
    for file in source.parent.glob(f"{source.name}*"):
        shutil.copyfile(file, folder / file.name)
        with (folder / file.name).open("rb") as copied:
            os.fsync(copied.fileno())
    return round(time.perf_counter() - start, 3)


def run(tools: list[str] | None, limit: float) -> None:
    """Measure each tool from path to path, once, right after copying the files."""
    data = (results.load("large") or {"data": {}})["data"]
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        for tool in tools or OPTIMIZERS:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                copying = copy(source, Path(place))
            with tempfile.TemporaryDirectory(dir=folder) as place:
                target = Path(place) / "optimized.onnx"
                report = measure(tool, source, target, 1, limit)
                if "failed" not in report:
                    report["nodes"] = count_nodes(target)
                    report["bytes"] = sum(file.stat().st_size for file in Path(place).iterdir())
                report["model_bytes"], report["copy_s"] = size, copying
                data[tool] = report
                print(tool, report, flush=True)
                results.save("large", data)
