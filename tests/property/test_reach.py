"""Every number that random programs compute is within its range, and none is negative where none can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.ir import Model
from graphopt.verify.runners import OrtRunner
from graphopt.verify.source import Source
from graphopt_passes.reach import is_positive, reach

SHAPE = (1, 2, 4, 4)
OF_ONE = (
    "Abs", "Clip", "Erf", "Exp", "HardSigmoid", "Identity", "Neg", "Relu", "Sigmoid", "Sin", "Softmax", "Softplus",
    "Softsign", "Sqrt", "Tanh", "AveragePool", "MaxPool", "ReduceL2", "ReduceMax", "ReduceMean",
)  # fmt: skip
OF_TWO = ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")
NUMBERS = np.array([0.0, -0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 1e-30, 1e30], np.float32)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-45, -1e-45, 88, -104], np.float32)
SETTINGS: dict[str, dict[str, Any]] = {
    "AveragePool": {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
    "MaxPool": {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
    **{op: {"axes": (3,)} for op in ("ReduceL2", "ReduceMax", "ReduceMean")},
}


def program(rng: np.random.Generator, length: int = 7) -> onnx.ModelProto:
    """Operators on what two inputs, constants and each other give; all results are put out."""
    values, nodes = ["x", "z"], []
    constants = {f"c{at}": number for at, number in enumerate(NUMBERS)}
    for at in range(length):
        last, name = str(rng.choice(values[-3:])), f"v{at}"
        if rng.random() < 0.5:
            op = str(rng.choice(OF_ONE))
            bounds = [f"c{place}" for place in np.argsort(NUMBERS)[np.sort(rng.choice(9, 2, replace=False))]]
            nodes.append(helper.make_node(op, [last, *bounds * (op == "Clip")], [name], **SETTINGS.get(op, {})))
        else:
            op = str(rng.choice(OF_TWO))
            pair = rng.permutation([last, str(rng.choice([*values, *constants]))]).tolist()
            nodes.append(helper.make_node(op, pair, [name]))
        values.append(name)
    floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "z")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values[2:]]
    tensors = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in constants.items()]
    graph = helper.make_graph(nodes, "program", floats, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inputs(rng: np.random.Generator) -> np.ndarray:
    ordinary = rng.standard_normal(SHAPE) * 10.0 ** rng.integers(-3, 3)
    special = rng.choice(SPECIAL, SHAPE) if rng.random() < 0.7 else np.full(SHAPE, rng.choice(SPECIAL))
    return np.where(rng.random(SHAPE) < rng.choice([0.0, 0.5, 1.0]), special, ordinary).astype(np.float32)


@pytest.mark.parametrize("seed", range(60))
def test_numbers_are_within_their_range(seed: int) -> None:
    rng = np.random.default_rng(seed)
    proto = program(rng)
    model, runner = Model.load(proto), OrtRunner(Source(proto, "program"))
    for _ in range(4):
        for value, numbers in zip(model.graph.outputs, runner.run({"x": inputs(rng), "z": inputs(rng)}), strict=True):
            (low, high), told = reach(value), numbers[~np.isnan(numbers)]
            assert ((told >= low) & (told <= high)).all(), (value, low, high)
            assert not (is_positive(value) and np.signbit(told).any()), value
