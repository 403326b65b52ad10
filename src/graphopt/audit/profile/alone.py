"""One operator timed three ways: in the model, alone with a warm cache, alone with the cache flushed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphopt.audit.profile.forms import other_form
from graphopt.audit.profile.peak import Peak, last_level_cache
from graphopt.audit.profile.record import Lone
from graphopt.audit.profile.values import values_of
from graphopt.ir import Model, Node, TensorType
from graphopt.ir.types import encode_type
from graphopt.system.files import scratch
from graphopt.system.processes import ChildError, Limits, call
from graphopt.system.sessions import kernel_events, open_session

_FLUSH_LIMIT = 1 << 30
_NEAR, _AT_LIMIT, _NONE = 1.5, "near the machine's limit", "none is known"
"""So close to the limit no other form is looked for; the texts for that, and for none found."""

_WARM_ROUNDS, _COLD_ROUNDS = 25, 7


@dataclass(frozen=True, slots=True)
class LoneJob:
    """One operator to time alone.

    Attributes:
        model: the one-node model, serialized.
        feed: its inputs.
        threads: intra-op threads.
        flush: bytes to touch between cold runs.
    """

    model: bytes
    feed: dict[str, Any]
    threads: int
    flush: int


def time_alone(level: str, path: Path, inside: dict[str, float], *, feed: dict[str, Any], peak: Peak) -> list[Lone]:
    """Time nodes of a graph on the values that they read in the model.

    Args:
        level: name of the graph's level.
        path: the graph that runs.
        inside: milliseconds of each node within the model, by name.
        feed: the model's inputs.
        peak: the machine's limits.
    """
    model = Model.load(path)
    nodes = {node.name: node for node in model.graph}
    wanted = [nodes[name] for name in inside if name in nodes]
    values = values_of(path, _needed(wanted), feed)
    return [_lone(level, node, inside[node.name], values, peak) for node in wanted]


def _needed(nodes: Sequence[Node]) -> list[str]:
    names = {v.name for node in nodes for v in (*node.inputs, *node.outputs) if v is not None and not v.is_const}
    return sorted(names)


def _lone(level: str, node: Node, inside: float, values: dict[str, Any], peak: Peak) -> Lone:
    inputs = [_array(value, values) for value in node.inputs if value is not None]
    outputs = [values[v.name] for v in node.outputs if v is not None and v.name in values]
    shapes = " x ".join(str(list(a.shape)) for a in inputs[:2] if a is not None)
    shapes += f" -> {list(outputs[0].shape)}" if outputs else ""
    lone = Lone(level, node.name, node.op, shapes, inside)
    arrays = [a for a in (*inputs, *outputs) if a is not None]
    lone.bytes = sum(a.nbytes for a in arrays)
    lone.flops = flops(node, inputs, outputs[0] if outputs else None)
    if inside > 0:
        lone.memory = lone.bytes / (inside * 1e6) / peak.gbytes
        lone.compute = lone.flops / (inside * 1e6) / peak.gflops if lone.flops is not None else None
    if node.subgraphs:
        lone.failure = "has a body"
        return lone
    try:
        job = _job(node, values, peak)
        near = lone.below is not None and lone.below < _NEAR
        lone.form = _AT_LIMIT if near else other_form(onnx.ModelProto.FromString(job.model)) or _NONE
        lone.warm, lone.cold = call(run_alone, job, limits=Limits(120.0))
    except ChildError as error:
        lone.failure = str(error)
    return lone


def _array(value: Any, values: dict[str, Any]) -> Any:
    found = values.get(value.name)
    return value.const() if found is None and value.is_const else found


def _job(node: Node, values: dict[str, Any], peak: Peak) -> LoneJob:
    model = onnx.ModelProto()
    source = node.graph.model.proto
    model.ir_version = source.ir_version
    model.opset_import.extend(source.opset_import)
    model.functions.extend(source.functions)
    graph = model.graph
    graph.name = "alone"
    feed: dict[str, Any] = {}
    for value in {v.name: v for v in node.inputs if v is not None}.values():
        tensor = value.constant_tensor
        if value.is_const and tensor is not None:
            tensor.fill(graph.initializer.add(), value.name)
            continue
        array = values.get(value.name)
        if array is None:
            raise ChildError(f"the value of {value.name} is not known")
        feed[value.name] = array
        info = graph.input.add()
        info.name = value.name
        dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        info.type.CopyFrom(encode_type(TensorType(dtype, tuple(array.shape))))
    assert node.proto is not None
    graph.node.add().CopyFrom(node.proto)
    for output in node.outputs:
        if output is not None:
            graph.output.add().name = output.name
    return LoneJob(model.SerializeToString(), feed, peak.threads, min(2 * last_level_cache(), _FLUSH_LIMIT))


def run_alone(job: LoneJob) -> tuple[float, float]:
    """Milliseconds of the kernel with warm and with flushed cache; runs in a separate process."""
    with scratch() as folder:
        session = open_session(job.model, threads=job.threads, profile=folder / "p")
        ballast = np.zeros(job.flush // 8)
        for _ in range(3):
            session.run(None, job.feed)
        for _ in range(_WARM_ROUNDS):
            session.run(None, job.feed)
        for _ in range(_COLD_ROUNDS):
            ballast += 1.0
            session.run(None, job.feed)
        times = [event["dur"] / 1e3 for event in kernel_events(session)]
    per_run = len(times) // (3 + _WARM_ROUNDS + _COLD_ROUNDS)  # a function operator runs as several kernels
    sums = [sum(times[at : at + per_run]) for at in range(0, len(times), max(1, per_run))]
    return statistics.median(sums[3 : 3 + _WARM_ROUNDS]), statistics.median(sums[3 + _WARM_ROUNDS :])


def flops(node: Node, inputs: Sequence[Any], output: Any) -> int | None:
    """Floating-point operations of products and convolutions; None for other operators."""
    kind = node.op_type
    if output is None or len(inputs) < 2 or inputs[0] is None or inputs[1] is None:
        return None
    if "Conv" in kind and kind != "ConvInteger":
        weight = inputs[1].shape
        if kind == "ConvTranspose":
            return int(2 * math.prod(inputs[0].shape) * math.prod(weight[1:]))
        return int(2 * math.prod(output.shape) * math.prod(weight[1:]))
    if kind in ("MatMul", "FusedMatMul", "Gemm", "FusedGemm", "MatMulInteger"):
        transposed = node.attrs.get("transA", 0)
        inner = inputs[0].shape[-2 if transposed and inputs[0].ndim > 1 else -1]
        return int(2 * math.prod(output.shape) * inner)
    return None
