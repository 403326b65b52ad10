"""Random networks in which whole filters are zero and whole channels are not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Made = tuple[str, int, int]
"""A value with the number of its channels and its size along each spatial axis."""


class Network:
    """Grows a network layer by layer.

    Args:
        seed: the seed of all choices.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([11, seed])
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def chance(self, part: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < part)

    def weight(self, array: np.ndarray) -> str:
        """A constant."""
        self.tensors.append(numpy_helper.from_array(np.asarray(array, np.float32), f"w{len(self.tensors)}"))
        return self.tensors[-1].name

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node; returns its output."""
        self.nodes.append(helper.make_node(op, list(inputs), [f"v{len(self.nodes)}"], **attrs))
        return self.nodes[-1].output[0]

    def filters(self, dims: list[int], made: int, read: int | None) -> str:
        """Weights in which some filters are zero, and sometimes some input channels have no weight."""
        weight = self.rng.standard_normal(dims) / np.sqrt(np.prod(dims) / dims[made])
        np.moveaxis(weight, made, 0)[self.rng.random(dims[made]) < self.rng.choice([0, 0.5, 0.9])] = 0
        if read is not None and self.chance(0.3):
            np.moveaxis(weight, read, 0)[self.rng.random(dims[read]) < 0.5] = 0
        return self.weight(weight)

    def bias(self, channels: int) -> list[str]:
        """A bias, or none."""
        row = self.rng.standard_normal(channels) * (self.rng.random(channels) < 0.7)
        return [self.weight(row if self.chance(0.5) else -np.abs(row))] if self.chance(0.7) else []

    def conv(self, x: Made, channels: int, kernel: int = 0, pad: bool | None = None) -> Made:
        """A convolution over all channels."""
        name, before, size = x
        kernel = kernel or int(self.rng.choice([1, 3]))
        kernel = kernel if size >= 3 else 1
        pads = kernel // 2 if (self.chance(0.5) if pad is None else pad) else 0
        weight = self.filters([channels, before, kernel, kernel], 0, 1)
        made = self.add("Conv", name, weight, *self.bias(channels), pads=[pads] * 4)
        return made, channels, size + 2 * pads - kernel + 1

    def depthwise(self, x: Made) -> Made:
        """A depthwise convolution."""
        name, channels, size = x
        kernel, pads = (3, int(self.rng.integers(2))) if size >= 3 else (1, 0)
        weight = self.filters([channels, 1, kernel, kernel], 0, None)
        made = self.add("Conv", name, weight, *self.bias(channels), group=channels, pads=[pads] * 4)
        return made, channels, size + 2 * pads - kernel + 1

    def grouped(self, x: Made) -> Made:
        """A grouped convolution."""
        name, channels, size = x
        group = 2 if channels % 2 == 0 else 1
        weight = self.filters([channels, channels // group, 1, 1], 0, None)
        return self.add("Conv", name, weight, *self.bias(channels), group=group), channels, size

    def transposed(self, x: Made, channels: int) -> Made:
        """A transposed convolution."""
        name, before, size = x
        weight = self.filters([before, channels, 2, 2], 1, 0)
        return self.add("ConvTranspose", name, weight, *self.bias(channels)), channels, size + 1

    def activation(self, x: Made) -> Made:
        """An elementwise operator."""
        name, channels, size = x
        op = str(self.rng.choice(["Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Tanh", "silu", "PRelu", "Clip", "Mul"]))
        if op == "silu":
            made = self.add("Mul", name, self.add("Sigmoid", name))
        elif op in ("PRelu", "Mul"):
            made = self.add(op, name, self.weight(self.rng.standard_normal((channels, 1, 1))))
        elif op == "Clip":
            made = self.add(op, name, self.weight(np.array(0)), self.weight(np.array(6)))
        else:
            made = self.add(op, name)
        return made, channels, size

    def pool(self, x: Made) -> Made:
        """A pooling operator."""
        name, channels, size = x
        if size < 3:
            return x
        op, pads = str(self.rng.choice(["MaxPool", "AveragePool"])), int(self.rng.integers(2))
        more = {"count_include_pad": int(self.rng.integers(2))} if op == "AveragePool" else {}
        return self.add(op, name, kernel_shape=[3, 3], pads=[pads] * 4, **more), channels, size + 2 * pads - 2

    def excited(self, x: Made) -> Made:
        """Channels scaled by a function of all channels: squeeze and excitation."""
        name, channels, size = x
        pooled = self.add("GlobalAveragePool", name), channels, 1
        small = self.activation(self.conv(pooled, 4, 1))
        return self.add("Mul", name, self.add("Sigmoid", self.conv(small, channels, 1)[0])), channels, size

    def residual(self, x: Made) -> Made:
        """The sum of a convolution and its input."""
        other = self.conv(x, x[1], 3 if x[2] >= 3 else 1, pad=True)
        return self.add("Add", x[0], other[0]), x[1], x[2]

    def block(self, x: Made) -> Made:
        """One of these layers or blocks."""
        kind = int(self.rng.integers(8))
        if kind <= 1:
            return self.conv(x, int(self.rng.choice([3, 4, 8, 12, 16, 24])))
        if kind == 2:
            return self.transposed(x, int(self.rng.choice([3, 8])))
        return [self.depthwise, self.grouped, self.pool, self.excited, self.residual][kind - 3](x)


def channels_network(seed: int) -> onnx.ModelProto:
    """A convolutional network of up to nine blocks, with a head of matrix products half of the time."""
    net = Network(seed)
    x = net.conv(("x", 3, 8), int(net.rng.choice([4, 8, 12])))
    outputs = []
    for _ in range(int(net.rng.integers(2, 10))):
        x = net.block(net.activation(x) if net.chance(0.7) else x)
        if net.chance(0.1):
            outputs.append(x[0])
    x = net.conv(net.activation(x), 5)
    if net.chance(0.5):
        row = net.add("Flatten", net.add("GlobalAveragePool", x[0]))
        hidden = net.add("Gemm", row, net.filters([x[1], 16], 1, 0), *net.bias(16))
        x = net.add("MatMul", net.add("Relu", hidden), net.filters([16, 4], 1, 0)), 4, 1
    made = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in dict.fromkeys([*outputs, x[0]])
    ]
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    graph = helper.make_graph(net.nodes, "g", [image], made, net.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)
