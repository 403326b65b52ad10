"""Random networks along one axis give the same numbers on images of one row, and in blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphopt import Options, PassManager
from graphopt.system.machine import host
from tests.passes.layout_models import assert_close, run

pytestmark = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")
PASS = "convert_conv_1d_to_2d"


class Rows:
    """Nodes on values [N, C, L]."""

    def __init__(self, seed: int, opset: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values: list[tuple[str, int, int]] = []

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, *shape: int, scale: float = 1.0) -> str:
        return self.weight((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name


Row = tuple[str, int, int]


def _conv(draw: st.DrawFn, b: Rows, x: Row) -> Row:
    name, channels, length = x
    group, outputs = draw(st.sampled_from([(1, draw(st.integers(1, 40))), (channels, channels)]))
    kernel, stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    pads = draw(st.lists(st.integers(0, 3), min_size=2, max_size=2))
    made = (length + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1
    if made < 2:
        return x
    inputs = [name, b.random(outputs, channels // group, kernel, scale=(channels // group * kernel) ** -0.5)]
    if draw(st.booleans()):
        inputs.append(b.random(outputs))
    return b.op("Conv", *inputs, group=group, strides=[stride], dilations=[dilation], pads=pads), outputs, made


def _alone(draw: st.DrawFn, b: Rows, x: Row) -> Row:
    name, channels, length = x
    how = draw(st.sampled_from(["Relu", "Sigmoid", "Tanh", "Softmax", "bn", "PRelu", "Mul", "gate", "mean", "length"]))
    if how == "bn":
        name = b.op("BatchNormalization", name, *(b.random(channels) for _ in range(3)), b.weight(
            np.full(channels, 1.5, np.float32)
        ))  # fmt: skip
    elif how in ("PRelu", "Mul"):
        name = b.op(how, name, b.random(*draw(st.sampled_from([(channels, 1), (1, channels, 1), (1,)]))))
    elif how == "gate":
        name = b.op("Mul", *draw(st.permutations([name, b.op("Sigmoid", b.op("GlobalAveragePool", name))])))
    elif how == "mean":
        axes = [b.weight(np.array([-1], np.int64))] if b.opset >= 18 else []
        name = b.op("Sub", name, b.op("ReduceMean", name, *axes, **({} if axes else {"axes": [2]})))
    elif how == "length":
        name = b.op("Add", name, b.random(length))
    else:
        name = b.op(how, name)
    return name, channels, length


def _window(draw: st.DrawFn, b: Rows, x: Row) -> Row:
    name, channels, length = x
    how = draw(st.sampled_from(["AveragePool", "MaxPool", "Pad", "Slice", "ConvTranspose"]))
    if how == "Pad":
        pads = b.weight(np.array([0, 0, 1, 0, 0, 1], np.int64))
        return (
            b.op("Pad", name, pads, mode=draw(st.sampled_from(["constant", "reflect", "edge"]))),
            channels,
            length + 2,
        )
    if how == "Slice":
        operands = [b.weight(np.array([n], np.int64)) for n in (1, length, draw(st.sampled_from([2, -1])))]
        return b.op("Slice", name, *operands), channels, length - 1
    if how == "ConvTranspose":
        weight = b.random(channels, 8, 2, scale=channels**-0.5)
        return b.op("ConvTranspose", name, weight, strides=[2]), 8, 2 * length
    return b.op(how, name, kernel_shape=[2], pads=[1, 0]), channels, length


def _join(draw: st.DrawFn, b: Rows, x: Row) -> Row:
    name, channels, length = x
    others = [value for value in b.values if value[2] == length]
    other = draw(st.sampled_from(others))
    if other[1] == channels and draw(st.booleans()):
        return b.op(draw(st.sampled_from(["Add", "Mul", "Max"])), name, other[0]), channels, length
    axis = draw(st.sampled_from([1, -2]))
    return b.op("Concat", name, other[0], axis=axis), channels + other[1], length


@st.composite
def networks(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    b = Rows(draw(st.integers(0, 2**16)), draw(st.sampled_from([14, 17, 18, 22])))
    channels, length, batch = draw(st.integers(1, 40)), draw(st.integers(4, 40)), draw(st.integers(1, 2))
    x: Row = ("x", channels, length)
    b.values.append(x)
    for step in [_conv, *draw(st.lists(st.sampled_from([_conv, _alone, _alone, _window, _join]), max_size=6))]:
        x = step(draw, b, x)
        if x[1] > 100 or x[2] > 200:
            break
        b.values.append(x)
    made = [value[0] for value in b.values if value[0] != "x"] or [b.op("Neg", "x")]
    names = list(dict.fromkeys([made[-1], draw(st.sampled_from(made))]))
    dims = ["N", channels, "L"] if draw(st.booleans()) else [batch, channels, length]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3) for name in names]
    graph = helper.make_graph(b.nodes, "g", [image], outs, b.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)], ir_version=9)
    return model, {"x": b.rng.standard_normal((batch, channels, length)).astype(np.float32)}


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(networks())
def test_rows_give_the_same_numbers(drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> None:
    model, feeds = drawn
    options = Options(extra={PASS: {"force": True}, "convert_layout_nchwc": {"force": True}})
    result = PassManager(passes=f"{PASS},convert_layout_nchwc", options=options, strict=True, check=True).run(model)
    weights = {tensor.name: tensor for tensor in result.model.graph.initializer}
    kernels = [weights.get(node.input[1]) for node in result.model.graph.node if node.op_type == "Conv"]
    assert all(kernel is None or len(kernel.dims) == 4 for kernel in kernels)
    assert_close(run(model, feeds), run(result.model, feeds))


@pytest.mark.parametrize(
    ("layer", "target", "pays"),
    [
        ((256, 7, 1000, 1), "avx512-zen5", True), ((512, 3, 200, 1), "avx512-zen5", True),
        ((512, 1, 50, 1), "avx512-zen5", True), ((64, 63, 400, 1), "avx512-zen5", True),
        ((256, 31, 100, 256), "avx512-zen5", True), ((64, 63, 100, 1), "avx512-zen5", True),
        ((128, 127, 200, 1), "avx512-zen5", True), ((256, 31, 30, 1), "avx512-zen5", True),
        ((192, 127, 199, 4), "avx512-zen5", True), ((16, 15, 20, 1), "avx512-zen5", False),
        ((64, 63, 100, 1), "avx2", False), ((128, 127, 200, 1), "avx2", False), ((256, 31, 30, 1), "avx2", False),
        ((192, 127, 199, 4), "avx2", False),
    ],
)  # fmt: skip
def test_long_kernels_on_short_rows_stay(layer: tuple[int, ...], target: str, *, pays: bool) -> None:
    """Where most windows reach into the padding, blocks pay only if rows are padded before."""
    channels, kernel, length, group = layer
    b = Rows(0, 17)
    result = b.op("Conv", "x", b.random(channels, channels // group, kernel), group=group, pads=[kernel // 2] * 2)
    result = b.op("Conv", result, b.random(channels, channels // group, kernel), group=group, pads=[kernel // 2] * 2)
    row = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, length]) for name in ("x", result)]
    graph = helper.make_graph(b.nodes, "g", row[:1], row[1:], b.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)], ir_version=9)
    found = PassManager(passes=PASS, target=target).run(model)
    assert ("Squeeze" in {node.op_type for node in found.model.graph.node}) == pays
