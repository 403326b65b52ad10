"""What graphopt says of sizes is what ONNX Runtime makes of them, or nothing: operators whose sizes are arithmetic."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import shape_inference

from graphopt.analysis import ShapeAnalysis, infer_node, infer_types
from graphopt.analysis.pool_sizes import pool_steps
from graphopt.ir import Model, TensorType
from tests.property.sized_operators import KINDS, Drawn, data, drawn, pool
from tests.versions import NEW_RUNTIME

SEEDS = 120


def run(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any] | None:
    """What the runtime computes without optimizing; None where it refuses the model or fails."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feed)
    except Exception:  # the runtime raises many kinds; such a draw is no valid model
        return None


def fits(claim: tuple[Any, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether a claim is true of a shape."""
    if claim is None:
        return True
    return len(claim) == len(shape) and all(c == d for c, d in zip(claim, shape, strict=True) if isinstance(c, int))


def claims(model: onnx.ModelProto) -> dict[str, dict[str, tuple[Any, ...] | None]]:
    """What each way to work out a shape says of each output."""
    view = Model.load(model)
    infer_types(view)
    analysis = ShapeAnalysis(view, zero_sizes=True)
    single = {
        value.name: found.shape
        for node in view.graph
        for value, found in zip(node.outputs, infer_node(node), strict=True)
        if value is not None and isinstance(found, TensorType)
    }
    outputs = view.graph.outputs
    return {
        "infer_types": {value.name: value.shape for value in outputs},
        "ShapeAnalysis": {value.name: analysis.shape(value) for value in outputs},
        "infer_node": single,
    }


def problems(case: Drawn, fed: Collection[int], shaped: bool = True) -> tuple[list[str], bool]:
    """False claims of a case, and whether it ran at all."""
    model, feed = case.model(fed, shaped)
    results = run(model, feed)
    found = []
    for way, shapes in claims(model).items():
        for info, array in zip(model.graph.output, results or [], strict=False):
            if isinstance(array, np.ndarray) and not fits(shapes.get(info.name), array.shape):
                found.append(f"{case}: {way} says {shapes[info.name]}, the runtime makes {array.shape}")
    return found, results is not None


@pytest.mark.parametrize("kind", KINDS)
def test_no_claim_contradicts_the_runtime(kind: str) -> None:
    if kind == "slice" and not NEW_RUNTIME:
        pytest.skip("ONNX Runtime before 1.32 gives Slice of an empty tensor other empty dimensions than the standard")
    ran = 0
    for seed in range(SEEDS):
        case = drawn(kind, seed)
        every = range(len(case.operands))
        ways = [((), True), ((0,), True), (every, True), *(((0, index), False) for index in every[1:])]
        for fed, shaped in ways:
            found, valid = problems(case, fed, shaped)
            assert not found, "\n".join(found)
            ran += valid
    assert ran > SEEDS // 3


def inferred(model: onnx.ModelProto) -> tuple[int, ...]:
    """What the standard's inference says of the first output."""
    result = shape_inference.infer_shapes(model)
    return tuple(dim.dim_value for dim in result.graph.output[0].type.tensor_type.shape.dim)


def test_pools_are_as_wide_as_the_table_says() -> None:
    """Both figures of `pool_steps` are exact: a size is unknown where the two differ, and nowhere else."""
    rng = random.Random(7)
    ran = differ = 0
    for _ in range(1500):
        case = pool(rng)
        case.operands = [data(1, 1, rng.randint(1, 12))]
        for name, value in case.attrs.items():
            if name == "pads":
                case.attrs[name] = [value[0], value[len(value) // 2]]
            elif isinstance(value, list):
                case.attrs[name] = value[:1]
        model, feed = case.model()
        results = run(model, feed)
        if results is None:
            continue
        node = next(iter(Model.load(model).graph))
        size = feed["x0"].shape[2]
        assert pool_steps(node, size, 0, 1) == (inferred(model)[2], results[0].shape[2]), case
        shapes = claims(model)["ShapeAnalysis"]["y0"]
        assert shapes is not None
        standard, runtime = pool_steps(node, size, 0, 1)
        assert isinstance(shapes[2], int) == (standard == runtime), case
        ran += 1
        differ += standard != runtime
    assert ran > 1000
    assert differ > 50
