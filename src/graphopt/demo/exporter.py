"""Writes networks like the common exporters: one node per module call, constants as nodes, nothing fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.demo.moments import Moments

_EPSILON = 1e-5
_MOMENTUM = 0.9
_OPSET = 17
_IR_VERSION = 8


@dataclass(frozen=True, slots=True)
class Activation:
    """A value of the network under construction, with the moments of its channels."""

    name: str
    moments: Moments

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.moments.mean)


class Exporter:
    """Builds one graph. Layers take the path of their module, and name their nodes after it."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._counts: dict[str, int] = {}

    def image(self) -> Activation:
        """The graph input: a normalized image."""
        return Activation("input", Moments(np.zeros(3), np.ones(3)))

    def conv(self, path: str, x: Activation, out: int, *, kernel: int, stride: int = 1, groups: int = 1) -> Activation:
        """A convolution without bias, "same" padding, weights by He's rule."""
        shape = (out, x.channels // groups, kernel, kernel)
        deviation = np.sqrt(2.0 / (shape[1] * kernel * kernel))
        weight = (self._rng.standard_normal(shape) * deviation).astype(np.float32)
        name = self.node(
            path,
            "Conv",
            [x.name, self.parameter(f"{path}.weight", weight)],
            dilations=[1, 1],
            group=groups,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )
        return Activation(name, x.moments.through_conv(weight, groups))

    def batch_norm(self, path: str, x: Activation) -> Activation:
        """Batch normalization in its inference form, with statistics near those of its input."""
        size, moments = x.channels, x.moments
        scale = self._rng.uniform(0.7, 1.3, size)
        shift = self._rng.normal(0.0, 0.3, size)
        mean = moments.mean + self._rng.normal(0.0, 0.1, size) * np.sqrt(moments.var)
        var = moments.var * self._rng.uniform(0.8, 1.25, size)
        parts = {"weight": scale, "bias": shift, "running_mean": mean, "running_var": var}
        inputs = [self.parameter(f"{path}.{key}", value.astype(np.float32)) for key, value in parts.items()]
        name = self.node(
            path, "BatchNormalization", [x.name, *inputs], epsilon=_EPSILON, momentum=_MOMENTUM, training_mode=0
        )
        factor = scale / np.sqrt(var + _EPSILON)
        return Activation(name, moments.through_affine(factor, shift - mean * factor))

    def relu(self, path: str, x: Activation) -> Activation:
        """A ReLU."""
        return Activation(self.node(path, "Relu", [x.name]), x.moments.through_clip())

    def relu6(self, path: str, x: Activation) -> Activation:
        """A ReLU6, written as Clip with two constants."""
        low, high = (self.constant(path, np.array(v, np.float32)) for v in (0.0, 6.0))
        return Activation(self.node(path, "Clip", [x.name, low, high]), x.moments.through_clip(6.0))

    def add(self, path: str, x: Activation, y: Activation) -> Activation:
        """A residual connection."""
        return Activation(self.node(path, "Add", [x.name, y.name]), x.moments + y.moments)

    def identity(self, path: str, x: Activation) -> Activation:
        """The remainder of a module that is the identity at inference."""
        return Activation(self.node(path, "Identity", [x.name]), x.moments)

    def max_pool(self, path: str, x: Activation) -> Activation:
        """A 3x3 max pool of stride 2."""
        name = self.node(path, "MaxPool", [x.name], ceil_mode=0, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
        return Activation(name, x.moments.through_max_pool())

    def classifier(self, x: Activation, path: str, classes: int, dropout: float) -> str:
        """Global pool, a flatten by shape arithmetic, dropout and a dense layer; returns the graph output's name."""
        pooled = self.node("avgpool", "GlobalAveragePool", [x.name])
        shape = self.node("", "Shape", [pooled])
        batch = self.node("", "Gather", [shape, self.constant("", np.array(0, np.int64))], axis=0)
        batch = self.node("", "Unsqueeze", [batch, self.constant("", np.array([0], np.int64))])
        target = self.node("", "Concat", [batch, self.constant("", np.array([-1], np.int64))], axis=0)
        flat = self.node("", "Reshape", [pooled, target])
        ratio = self.constant(path, np.array(dropout, np.float32))
        kept = self.node(path, "Dropout", [flat, ratio, self.constant(path, np.array(False))])
        weight = self._rng.standard_normal((classes, x.channels)) * np.sqrt(1.0 / x.channels)
        bias = self._rng.normal(0.0, 0.1, classes)
        inputs = [
            kept,
            self.parameter(f"{path}.weight", weight.astype(np.float32)),
            self.parameter(f"{path}.bias", bias.astype(np.float32)),
        ]
        self._nodes.append(
            helper.make_node("Gemm", inputs, ["output"], name=f"/{path}/Gemm", alpha=1.0, beta=1.0, transB=1)
        )
        return "output"

    def node(self, path: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node; returns the name of its output."""
        name = self._fresh(path, op)
        output = f"{name}_output_0"
        self._nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def constant(self, path: str, array: np.ndarray[Any, Any]) -> str:
        """A Constant node, as exporters write scalars and shapes."""
        return self.node(path, "Constant", [], value=numpy_helper.from_array(array))

    def parameter(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """An initializer."""
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def model(self, classes: int, size: int) -> onnx.ModelProto:
        """The finished model: `input` [batch, 3, size, size] to `output` [batch, classes]."""
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, size, size])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", classes])],
            self._initializers,
        )
        return helper.make_model(
            graph,
            producer_name="graphopt.demo",
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )

    def _fresh(self, path: str, op: str) -> str:
        base = f"/{path.replace('.', '/')}/{op}" if path else f"/{op}"
        count = self._counts.get(base, 0)
        self._counts[base] = count + 1
        return f"{base}_{count}" if count else base
