"""Networks that are slow only because of denormal weights, before and after: counts, the bound, and times.

`field report` is the MobileNetV2 of docs/field-reports.md. `generated` is a chain of convolutions with batch
normalization whose scales have all magnitudes from 1 to the smallest denormal, some compensated later: none of its
own weights is denormal, folding makes them so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.results import machine
from graphopt import demo
from graphopt.manager import PassManager
from graphopt.results import Result
from graphopt.verify import compare

DEAD, WEIGHTS = "eliminate_dead_channels", "eliminate_negligible_weights"
STAGES: dict[str, Sequence[str] | None] = {
    "as it came": None, "basic without both passes": (WEIGHTS, DEAD), "basic, channels kept": (DEAD,), "basic": (),
}  # fmt: skip
"""The skipped passes of `basic`; None for the original model."""


def field_report() -> onnx.ModelProto:
    """MobileNetV2 with every other scale of its batch normalization times 1e-38."""
    model = demo.mobilenet_v2()
    scales = {node.input[1] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for tensor in model.graph.initializer:
        if tensor.name in scales:
            scale = numpy_helper.to_array(tensor).copy()
            scale[::2] *= np.float32(1e-38)
            tensor.CopyFrom(numpy_helper.from_array(scale, tensor.name))
    return model


def generated(seed: int = 0, depth: int = 8, channels: int = 64, size: int = 56) -> onnx.ModelProto:
    """A network whose own weights are normal and whose folded weights include denormals.

    Args:
        seed: seed of the weights.
        depth: number of convolutions.
        channels: channels of each.
        size: size of the image.
    """
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []

    def weight(array: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(array.astype(np.float32), f"w{len(tensors)}"))
        return tensors[-1].name

    value, before = "x", 3
    for at in range(depth):
        kernel = rng.standard_normal((channels, before, 3, 3)) / np.sqrt(9 * before)
        kernel = np.where(np.abs(kernel) < 1e-6, 1e-6, kernel)
        nodes.append(helper.make_node("Conv", [value, weight(kernel)], [f"c{at}"], pads=[1, 1, 1, 1]))
        low = np.finfo(np.float32).smallest_normal
        tiny = np.maximum(10.0 ** rng.uniform(-37.9, -33, channels), low)
        scale = np.where(rng.random(channels) < 0.5, tiny, rng.uniform(0.5, 2, channels))
        shift = np.where(rng.random(channels) < 0.5, 0, rng.normal(0, 0.3, channels))
        rest = weight(shift), weight(rng.normal(0, 0.1, channels)), weight(rng.uniform(0.5, 2, channels))
        nodes.append(helper.make_node("BatchNormalization", [f"c{at}", weight(scale), *rest], [f"n{at}"]))
        nodes.append(helper.make_node("Relu", [f"n{at}"], [f"r{at}"]))
        value, before = f"r{at}", channels
    nodes.append(helper.make_node("Conv", [value, weight(rng.standard_normal((8, channels, 1, 1)))], ["y"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "generated", [info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [info("y", TensorProto.FLOAT, [1, 8, size, size])], tensors,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {"field report": field_report, "generated": generated}


def denormals(model: onnx.ModelProto) -> int:
    """The number of denormal weights: elements of initializers with several axes; a bias is not multiplied."""
    arrays = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if len(tensor.dims) > 1]
    floats = [array for array in arrays if array.dtype in (np.float32, np.float64)]
    return sum(int(((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)).sum()) for array in floats)


def parameters(model: onnx.ModelProto) -> int:
    """The number of elements of all initializers."""
    return sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)


def removed(model: onnx.ModelProto) -> int:
    """The number of removed channels, by the model's metadata."""
    return sum(int(entry.value) for entry in model.metadata_props if entry.key == "graphopt.removed_channels")


def stages(model: onnx.ModelProto) -> dict[str, Result | None]:
    """The results of all stages; None for the original model."""
    return {
        name: None if skip is None else PassManager("basic", skip=list(skip)).run(model)
        for name, skip in STAGES.items()
    }


def bound(result: Result) -> float:
    """The largest change of any operator's output, for activations of magnitude 1."""
    return max((event.bound for event in result.events if event.zeroed), default=0.0)


def _sessions(models: dict[str, onnx.ModelProto]) -> dict[tuple[str, str], Any]:
    import onnxruntime as ort

    found = {}
    for name, model in models.items():
        for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
            options = ort.SessionOptions()
            options.intra_op_num_threads = 1
            options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
            found[name, level] = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
    return found


def times(models: dict[str, onnx.ModelProto], seconds: float) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of runs, which alternate between the models, so that a busy machine affects all alike.

    Args:
        models: the models to run.
        seconds: the duration.
    """
    sessions = _sessions(models)
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in sessions}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or min(map(len, taken.values())) < 3:
        for key, session in sessions.items():
            info = session.get_inputs()[0]
            dims = [size if isinstance(size, int) else 1 for size in info.shape]
            feed = {info.name: np.random.default_rng(0).standard_normal(dims).astype(np.float32)}
            start = time.perf_counter()
            session.run(None, feed)
            taken[key].append((time.perf_counter() - start) * 1e3)
    return taken


def run(names: Sequence[str] | None, seconds: float) -> str:
    """The report as Markdown.

    Args:
        names: networks of `NETWORKS`; all if none is given.
        seconds: seconds of timing for each.
    """
    here = machine()
    lines = [f"{here['processor']}, one thread; least and median of runs in turn, milliseconds", ""]
    for name in names or NETWORKS:
        model = NETWORKS[name]()
        results = stages(model)
        models = {stage: model if result is None else result.model for stage, result in results.items()}
        taken = times(models, seconds)
        report = compare(model, models["basic"])
        lines += [f"## {name}", "", "| | parameters | denormal | zeroed | channels removed | bound | off | all |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for stage, result in results.items():
            made = models[stage]
            shown = [f"{min(t):.1f} / {statistics.median(t):.1f}" for key, t in taken.items() if key[0] == stage]
            counts = [f"{parameters(made):,}", f"{denormals(made):,}", f"{result.zeroed if result else 0:,}"]
            limit = f"{bound(result):.2g}" if result else "-"
            lines.append(f"| {' | '.join([stage, *counts, f'{removed(made):,}', limit, *shown])} |")
        worst = max((out.max_abs for case in report.cases for out in case.outputs), default=0.0)
        lines += ["", f"results of basic beside the original's: {report.status}, largest difference {worst:.2g}", ""]
    return "\n".join(lines)
