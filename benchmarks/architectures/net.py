"""Writes networks as graphs, layer after layer, as an exporter would: constant weights, static shapes, folded norms.

Weights are recipes, which `graphopt.demo.skeletons.refill` turns into the same numbers every time; their spread keeps
values at about 1 from layer to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from benchmarks.zoo import Input
from graphopt.demo.skeletons import MARK, refill

_FEW = 64
"""Weights with fewer numbers are stored as they are."""


@dataclass(slots=True)
class Net:
    """A network that is being written; values are their names.

    Attributes:
        opset: the opset.
        inputs: what the network reads.
        act: the activation that layers have unless they are told another; "" for none.
    """

    opset: int = 17
    act: str = "Relu"
    inputs: list[Input] = field(default_factory=list)
    _nodes: list[NodeProto] = field(default_factory=list)
    _constants: dict[str, TensorProto] = field(default_factory=dict)
    _types: dict[str, TypeProto] = field(default_factory=dict)

    # ------------------------------------------------------------------ values

    def input(self, *dims: int, kind: str = "image", bound: int = 0) -> str:
        """A further input: floats, or `ids` below a bound."""
        name = f"input_{len(self.inputs)}"
        self.inputs.append(Input(name, dims, kind, bound))
        element = TensorProto.FLOAT if kind == "image" else TensorProto.INT64
        self._types[name] = helper.make_tensor_type_proto(element, dims)
        return name

    def weight(self, *dims: int, spread: float | None = None, fan: int = 0) -> str:
        """Random weights; `fan` is how many of them are summed up, all but the first axis when 0."""
        name, count = f"weight_{len(self._constants)}", prod(dims)
        std = spread if spread is not None else (1.6 / (fan or prod(dims[1:]) or 1)) ** 0.5
        tensor = TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT)
        recipe = {"location": MARK, "seed": str(len(self._constants)), "mean": "0", "std": f"{std:.5g}"}
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in recipe.items():
            tensor.external_data.add(key=key, value=value)
        if count < _FEW:
            holder = helper.make_model(helper.make_graph([], "w", [], [], [tensor]))
            tensor = refill(holder).graph.initializer[0]
        return self._keep(tensor)

    def const(self, array: Any, dtype: Any = np.float32) -> str:
        """Numbers that are given."""
        return self._keep(numpy_helper.from_array(np.asarray(array, dtype), f"constant_{len(self._constants)}"))

    def ints(self, *numbers: int) -> str:
        """A list of integers: a shape, axes, ends."""
        return self.const(numbers, np.int64)

    def _keep(self, tensor: TensorProto) -> str:
        self._constants[tensor.name] = tensor
        self._types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        return tensor.name

    def shape(self, x: str) -> tuple[int, ...]:
        """The sizes of a value."""
        return tuple(dim.dim_value for dim in self._types[x].tensor_type.shape.dim)

    # ------------------------------------------------------------------ operators

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The only result of an operator, `domain::Type` where it is not the standard's."""
        return self.many(1, op, *inputs, **attrs)[0]

    def many(self, count: int, op: str, *inputs: str, **attrs: Any) -> list[str]:
        """The results of an operator."""
        domain, _, op_type = op.rpartition("::")
        outputs = [f"{op_type.lower()}_{len(self._nodes)}_{at}" for at in range(count)]
        node = helper.make_node(op_type, inputs, outputs, domain=domain, **attrs)
        node.name = f"node_{len(self._nodes)}"
        self._nodes.append(node)
        if domain:
            like = self._types[inputs[0]]
            self._types.update(dict.fromkeys(outputs, like))
            return outputs
        schema = onnx.defs.get_schema(op_type, self.opset, "")
        known = {name: self._types[name] for name in inputs if name}
        given = {name: self._constants[name] for name in inputs if self._is_small(name)}
        self._types.update(
            onnx.shape_inference.infer_node_outputs(
                schema, node, known, given, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
            )
        )
        return outputs

    def _is_small(self, name: str) -> bool:
        return name in self._constants and self._constants[name].data_location != TensorProto.EXTERNAL

    def model(self, *results: str) -> onnx.ModelProto:
        """The network that gives these results."""
        given = [helper.make_value_info(spec.name, self._types[spec.name]) for spec in self.inputs]
        made = [helper.make_value_info(name, self._types[name]) for name in results]
        graph = helper.make_graph(self._nodes, "network", given, made, list(self._constants.values()))
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in self._nodes):
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="benchmarks.architectures")

    # ------------------------------------------------------------------ layers

    def activate(self, x: str, act: str | None = None) -> str:
        """An activation, as exporters spell it."""
        kind = self.act if act is None else act
        if kind == "Silu":
            return self("Mul", x, self("Sigmoid", x))
        if kind == "Gelu":
            inner = self("Add", self("Erf", self("Div", x, self.const(2**0.5))), self.const(1.0))
            return self("Mul", self("Mul", x, inner), self.const(0.5))
        if kind == "Relu6":
            return self("Clip", x, self.const(0.0), self.const(6.0))
        if kind == "PRelu":
            return self("PRelu", x, self.weight(self.shape(x)[1], *[1] * (len(self.shape(x)) - 2), spread=0.2))
        attrs = {"alpha": 0.1} if kind == "LeakyRelu" else {}
        return self(kind, x, **attrs) if kind else x

    def conv(
        self, x: str, outputs: int, kernel: int | Sequence[int] = 3, stride: int = 1, *, group: int = 1,
        dilation: int = 1, act: str | None = None, pad: bool = True,
    ) -> str:  # fmt: skip
        """A convolution with bias, as wide as the rank of `x` says, and an activation."""
        inputs, rank = self.shape(x)[1], len(self.shape(x)) - 2
        sides = [kernel] * rank if isinstance(kernel, int) else list(kernel)
        pads = [dilation * (side // 2) if pad else 0 for side in sides]
        y = self(
            "Conv", x, self.weight(outputs, inputs // group, *sides), self.weight(outputs, spread=0.1),
            kernel_shape=sides, strides=[stride] * rank, pads=pads * 2, group=group, dilations=[dilation] * rank,
        )  # fmt: skip
        return self.activate(y, act)

    def depthwise(self, x: str, kernel: int = 3, stride: int = 1, act: str | None = None, dilation: int = 1) -> str:
        """A convolution of each channel by itself."""
        channels = self.shape(x)[1]
        return self.conv(x, channels, kernel, stride, group=channels, act=act, dilation=dilation)

    def deconv(self, x: str, outputs: int, kernel: int = 4, stride: int = 2, act: str | None = None) -> str:
        """A transposed convolution that makes an image `stride` times as large."""
        weight = self.weight(self.shape(x)[1], outputs, kernel, kernel)
        pad, more = (kernel - stride + 1) // 2, (kernel - stride) % 2
        y = self(
            "ConvTranspose", x, weight, self.weight(outputs, spread=0.1), kernel_shape=[kernel] * 2,
            strides=[stride] * 2, pads=[pad] * 4, output_padding=[more] * 2,
        )  # fmt: skip
        return self.activate(y, act)

    def pool(self, x: str, kernel: int = 2, stride: int = 2, kind: str = "MaxPool", pad: int = 0) -> str:
        """A pool of images."""
        return self(kind, x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def norm(self, x: str) -> str:
        """A BatchNormalization that no convolution in front of it took in."""
        c = self.shape(x)[1]
        scale, mean = self.const(np.linspace(0.8, 1.2, c)), self.weight(c, spread=0.1)
        return self("BatchNormalization", x, scale, self.weight(c, spread=0.1), mean, self.const(np.full(c, 0.9)))

    def instance_norm(self, x: str) -> str:
        """An InstanceNormalization."""
        c = self.shape(x)[1]
        return self("InstanceNormalization", x, self.const(np.linspace(0.8, 1.2, c)), self.weight(c, spread=0.1))

    def layer_norm(self, x: str) -> str:
        """A LayerNormalization along the last axis."""
        width = self.shape(x)[-1]
        return self("LayerNormalization", x, self.const(np.linspace(0.9, 1.1, width)), self.weight(width, spread=0.05))

    def linear(self, x: str, outputs: int, act: str = "", *, bias: bool = True) -> str:
        """A dense layer along the last axis."""
        inputs = self.shape(x)[-1]
        y = self("MatMul", x, self.weight(inputs, outputs, fan=inputs))
        return self.activate(self("Add", y, self.weight(outputs, spread=0.1)) if bias else y, act)

    def dense(self, x: str, outputs: int, act: str = "") -> str:
        """A dense layer of rows, as Gemm."""
        inputs = self.shape(x)[-1]
        weight = self.weight(outputs, inputs)
        return self.activate(self("Gemm", x, weight, self.weight(outputs, spread=0.1), transB=1), act)

    def reshape(self, x: str, *dims: int) -> str:
        """Other sizes of the same numbers."""
        return self("Reshape", x, self.ints(*dims))

    def transpose(self, x: str, *perm: int) -> str:
        """Other order of axes."""
        return self("Transpose", x, perm=perm)

    def split(self, x: str, count: int, axis: int = 1) -> list[str]:
        """Equal parts."""
        size = self.shape(x)[axis] // count
        return self.many(count, "Split", x, self.ints(*[size] * count), axis=axis)

    def concat(self, *parts: str, axis: int = 1) -> str:
        """Parts put together."""
        return self("Concat", *parts, axis=axis)

    def mean(self, x: str, *axes: int, keep: bool = False) -> str:
        """The mean along axes."""
        return self("ReduceMean", x, axes=axes, keepdims=int(keep))

    def resize(self, x: str, scale: float, mode: str = "nearest") -> str:
        """A larger or smaller image, as torch's interpolate is exported."""
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        how = how if mode == "nearest" else {"coordinate_transformation_mode": "pytorch_half_pixel"}
        return self("Resize", x, "", self.const([1, 1, scale, scale]), mode=mode, **how)

    def classes(self, x: str, count: int = 100) -> str:
        """The head of a classifier."""
        return self.dense(self("Flatten", self("GlobalAveragePool", x)), count)

    def squeeze(self, x: str, ratio: int = 4, gate: str = "Sigmoid") -> str:
        """Channels weighed by what is in the whole image (squeeze and excitation)."""
        channels = self.shape(x)[1]
        y = self.conv(self("GlobalAveragePool", x), max(channels // ratio, 8), 1)
        return self("Mul", x, self.conv(y, channels, 1, act=gate))

    def add(self, x: str, y: str, act: str = "") -> str:
        """A sum, and an activation of it."""
        return self.activate(self("Add", x, y), act)

    def attention(
        self, x: str, heads: int, *, context: str = "", bias: str = "", keys: int = 0, scaled: bool = True
    ) -> str:
        """Attention of rows [1, S, D], spelled out, with its projections."""
        (_, rows, width), other = self.shape(x), context or x
        size, others = width // heads, self.shape(other)[1]
        q = self.heads(self.linear(x, width), rows, heads, size, 0, 2, 1, 3)
        k = self.heads(self.linear(other, width), others, heads, size, 0, 2, 3, 1)
        v = self.heads(self.linear(other, width), others, heads, size, 0, 2, 1, 3)
        scores = self("MatMul", q, k)
        scores = self("Div", scores, self.const(size**0.5)) if scaled else scores
        scores = self("Add", scores, bias) if bias else scores
        y = self("MatMul", self("Softmax", scores, axis=-1), v)
        return self.linear(self.reshape(self.transpose(y, 0, 2, 1, 3), 1, rows, width), width)

    def heads(self, x: str, rows: int, heads: int, size: int, *perm: int) -> str:
        """Rows divided among heads."""
        return self.transpose(self.reshape(x, 1, rows, heads, size), *perm)

    def encoder(self, x: str, heads: int, *, bias: str = "", act: str = "Gelu", wide: int = 4) -> str:
        """A layer of a transformer whose norms come first."""
        x = self.add(x, self.attention(self.layer_norm(x), heads, bias=bias))
        return self.feed_forward(x, act, wide)

    def feed_forward(self, x: str, act: str = "Gelu", wide: int = 4) -> str:
        """Its second half."""
        width = self.shape(x)[-1]
        return self.add(x, self.linear(self.linear(self.layer_norm(x), wide * width, act), width))

    def rows(self, image: str) -> str:
        """The pixels of an image as rows."""
        _, channels, height, width = self.shape(image)
        return self.transpose(self.reshape(image, 1, channels, height * width), 0, 2, 1)

    def image(self, rows: str, height: int, width: int) -> str:
        """Rows as the pixels of an image."""
        return self.reshape(self.transpose(rows, 0, 2, 1), 1, self.shape(rows)[-1], height, width)
