"""Convolutions in floats between quantized ones: they are blocked, the others take integers with channels last."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import PassManager
from graphopt.system.machine import BLOCKS, host
from graphopt.system.sessions import open_session

CHANNELS, SIDE = 64, 28
STEP = 0.05


class Network:
    """Layers one behind the other."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.scale, self.zero = self._constant(np.float32(STEP)), self._constant(np.uint8(128))
        self.weight_scale, self.weight_zero = self._constant(np.float32(0.0025)), self._constant(np.int8(0))

    def _constant(self, array: np.ndarray | np.generic) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        """One operator's result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def quantized(self, x: str) -> str:
        """The value by way of integers."""
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, self.scale, self.zero), self.scale, self.zero)

    def integers(self, x: str) -> str:
        """A convolution that a quantizer wrote."""
        weight = self._constant(self.rng.integers(-40, 41, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8))
        weight = self.add("DequantizeLinear", weight, self.weight_scale, self.weight_zero)
        return self.quantized(self.add("Conv", x, weight, pads=[1, 1, 1, 1]))

    def floats(self, x: str) -> str:
        """A convolution that was left as it was."""
        weight = self.rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32) / np.float32(24)
        return self.add("Relu", self.add("Conv", x, self._constant(weight), pads=[1, 1, 1, 1]))

    def model(self, result: str) -> onnx.ModelProto:
        """All of it."""
        shape = [1, CHANNELS, SIDE, SIDE]
        (x, y) = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", result))
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made, full_check=True)
        return made


@pytest.mark.skipif(host().block not in BLOCKS, reason="this machine has no blocked kernels")
def test_both_kinds_take_their_own_layout() -> None:
    net = Network()
    x = net.quantized("x")
    for layer in (
        net.integers,
        net.floats,
        net.floats,
        net.floats,
        net.quantized,
        net.integers,
        net.floats,
        net.floats,
    ):
        x = layer(x)
    model = net.model(net.integers(net.quantized(x)))
    result = PassManager("all", strict=True, check=True).run(model).model
    ops = Counter(f"{node.domain}::{node.op_type}" for node in result.graph.node)
    assert ops["com.microsoft.nchwc::Conv"] == 5
    assert ops["com.microsoft::QLinearConv"] + ops["::QLinearConv"] == 3
    assert ops["com.microsoft.nchwc::ReorderInput"] == ops["com.microsoft.nchwc::ReorderOutput"] == 2
    feeds = {"x": np.random.default_rng(1).standard_normal((1, CHANNELS, SIDE, SIDE), np.float32)}
    before, ours, theirs = (
        session.run(None, feeds)[0]
        for session in (open_session(model), open_session(result), open_session(model, level="all"))
    )
    assert rms(ours - before) <= 1.1 * rms(theirs - before), "further from the original than the runtime itself"
    assert np.std(before) > 4 * STEP, "the numbers tell nothing"


def rms(values: np.ndarray) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))
