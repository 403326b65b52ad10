"""Small models for audits of many."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.audit.contestants import UNOPTIMIZED
from graphopt.audit.corpus import CorpusSettings, Record, Reference
from graphopt.audit.corpus.sources import fetched

COUNTING = CorpusSettings(levels=("basic",), timed=False, seconds=30.0)


def chain(number: int = 0, *, external: bool = False) -> onnx.ModelProto:
    """y = Relu(Identity(x @ w)) with weights that differ from number to number."""
    array = np.random.default_rng(number).normal(size=(4, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scaled"], name="scale"),
        helper.make_node("Identity", ["scaled"], ["same"], name="same"),
        helper.make_node("Relu", ["same"], ["y"], name="relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])
    graph = helper.make_graph(nodes, "chain", [x], [y], [numpy_helper.from_array(array, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if external:
        onnx.external_data_helper.convert_model_to_external_data(model, location="weights.data", size_threshold=16)
    return model


def write(folder: Path, count: int, first: int = 0) -> Path:
    """Models with different contents in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        onnx.save(chain(number), folder / f"m{number:03}.onnx")
    return folder


def quick(reference: Reference, settings: CorpusSettings, disk: int | None = None) -> Record:
    """A task that takes no time: what `audit_one` would say of a model, without its audit."""
    time.sleep(0.01)
    with fetched(reference, disk=disk) as path:
        good = path.read_bytes() != b"bad"
    row = {
        "name": "graphopt basic", "version": "1", "status": "ok", "verification": "equal", "message": "", "seconds": 0.1,
        "contents": {"nodes": 2, "file_bytes": 100, "ops": {"Relu": 1}}, "passes": {}, "removed": {}, "speedup": {},
    }  # fmt: skip
    audit = {"rows": [{**row, "name": UNOPTIMIZED}, row], "threads": [1]}
    how = "" if good else f"{reference.name}: no ONNX model"
    return Record(reference.digest, reference.name, "done" if good else "failed", how, audit=audit if good else None)


def endless() -> onnx.ModelProto:
    """A loop of 2**62 rounds over a number: every run of it lasts for ever, and no pass may unroll it."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Sin", ["v"], ["w"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [8]),
        ],
    )
    rounds = numpy_helper.from_array(np.array(2**62, np.int64), "rounds")
    true = numpy_helper.from_array(np.array(True), "true")
    nodes = [helper.make_node("Loop", ["rounds", "true", "x"], ["y"], body=body)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])
    graph = helper.make_graph(nodes, "endless", [x], [y], [rounds, true])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def greedy(gibibytes: int = 64) -> onnx.ModelProto:
    """A model that wants more memory than there is as soon as it runs."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Softmax", ["wide"], ["soft"]),
        helper.make_node("ReduceMax", ["soft"], ["y"], keepdims=0),
    ]
    shape = numpy_helper.from_array(np.array([gibibytes, 1 << 14, 1 << 14], np.int64), "shape")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "greedy", [x], [y], [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def slowly(reference: Reference, settings: CorpusSettings, disk: int | None = None) -> Record:
    """The same, slowly enough for something to happen meanwhile; a file beside the model says which process is at it."""
    Path(reference.name).with_suffix(".begun").write_text(str(os.getpid()), encoding="ascii")
    time.sleep(0.2)
    return quick(reference, settings)
