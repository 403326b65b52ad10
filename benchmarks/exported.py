"""Layers as torch's exporter writes them, for generated networks with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from benchmarks.synthetic import Builder, Dims

Shape = Sequence[int | str]
"""Sizes of a view: a number, or the name of a value that holds one."""


class Exported(Builder):
    """A model written layer by layer, in the exporter's form of each."""

    def __init__(self, opset: int = 17) -> None:
        super().__init__(opset)
        self.graph.name = "main_graph"

    def operand(self, name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> str:
        """An input of any type; returns its name."""
        self.input(name, dims)
        self.graph.input[-1].type.tensor_type.elem_type = kind
        return name

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self.weight(value, share=True)

    def sizes(self, *values: int) -> str:
        """Constant integers."""
        return self.weight(list(values), share=True)

    def index(self, value: int) -> str:
        """A constant integer of rank 0, as an index."""
        name = f"i{value}".replace("-", "_")
        if name not in self._cache.values():
            self.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
            self._cache[name.encode()] = name
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node, whose attributes may be strings."""
        texts = {name: value for name, value in attributes.items() if isinstance(value, str)}
        out = super().node(op, *inputs, **{name: each for name, each in attributes.items() if name not in texts})
        self.nodes[-1].attribute.extend(helper.make_attribute(name, value) for name, value in texts.items())
        return out

    def nodes_of(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Append a node with several outputs."""
        first = self.node(op, *inputs, **attributes)
        node: NodeProto = self.nodes[-1]
        node.output.extend(f"{first}_{at}" for at in range(1, count))
        return list(node.output)

    def kernel(self, out: int, *shape: int) -> str:
        """A weight that preserves the variance of its operand."""
        return self.noise(out, *shape, scale=1 / sqrt(prod(shape)))

    def linear(self, x: str, before: int, after: int, *, bias: bool = True) -> str:
        """`nn.Linear` on an operand of rank 3."""
        product = self.node("MatMul", x, self.noise(before, after, scale=before**-0.5))
        return self.node("Add", self.noise(after, scale=0.1), product) if bias else product

    def conv(
        self, x: str, before: int, after: int, kernel: Sequence[int], *, bias: bool = True, **settings: Any
    ) -> str:
        """A convolution, by default with an output of the operand's size."""
        group, dilations = settings.get("group", 1), settings.get("dilations", (1,) * len(kernel))
        half = [(size - 1) * dilation // 2 for size, dilation in zip(kernel, dilations, strict=True)]
        given: dict[str, Any] = {
            "dilations": dilations, "group": group, "kernel_shape": tuple(kernel),
            "pads": settings.get("pads", (*half, *half)), "strides": settings.get("strides", (1,) * len(kernel)),
        }  # fmt: skip
        weights = [self.kernel(after, before // group, *kernel), *([self.noise(after, scale=0.1)] if bias else [])]
        return self.node("Conv", x, *weights, **given)

    def upsampled(self, x: str, before: int, after: int, kernel: Sequence[int], stride: int) -> str:
        """A transposed convolution that enlarges its operand by the stride."""
        rank, pad = len(kernel), (kernel[0] - stride) // 2
        weight = self.noise(before, after, *kernel, scale=(before * prod(kernel) / stride**rank) ** -0.5)
        return self.node(
            "ConvTranspose", x, weight, self.noise(after, scale=0.1), dilations=(1,) * rank, group=1,
            kernel_shape=tuple(kernel), pads=(pad,) * 2 * rank, strides=(stride,) * rank,
        )  # fmt: skip

    def view(self, x: str, *shape: int | str) -> str:
        """`view`: with a constant shape, or one concatenated from sizes."""
        if all(isinstance(size, int) for size in shape):
            return self.node("Reshape", x, self.sizes(*(size for size in shape if isinstance(size, int))))
        return self.node("Reshape", x, self.together(shape))

    def together(self, shape: Shape) -> str:
        """The vector of given sizes."""
        parts = [
            self.sizes(size) if isinstance(size, int) else self.node("Unsqueeze", size, self.sizes(0)) for size in shape
        ]
        return self.node("Concat", *parts, axis=0)

    def size(self, x: str, axis: int) -> str:
        """One size of a value."""
        return self.node("Gather", self.node("Shape", x), self.index(axis), axis=0)

    def turned(self, x: str, *perm: int) -> str:
        """`permute`."""
        return self.node("Transpose", x, perm=perm)

    def cut(self, x: str, start: int | str, end: int | str, axis: int) -> str:
        """`x[start:end]` along an axis."""
        ends = [self.sizes(each) if isinstance(each, int) else each for each in (start, end)]
        return self.node("Slice", x, *ends, self.sizes(axis), self.sizes(1))

    def silu(self, x: str) -> str:
        """`nn.SiLU`."""
        return self.node("Mul", x, self.node("Sigmoid", x))

    def gelu(self, x: str) -> str:
        """`nn.GELU`."""
        erf = self.node("Erf", self.node("Div", x, self.number(2.0**0.5)))
        return self.node("Mul", self.node("Mul", x, self.node("Add", erf, self.number(1.0))), self.number(0.5))

    def layer_norm(self, x: str, width: int) -> str:
        """`nn.LayerNorm` since opset 17."""
        return self.node(
            "LayerNormalization", x, self.about_one(width), self.noise(width, scale=0.1), axis=-1, epsilon=1e-5
        )

    def rms_norm(self, x: str, width: int) -> str:
        """The normalization of LLaMA, written out."""
        mean = self.node("ReduceMean", self.node("Pow", x, self.number(2.0)), axes=(-1,), keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.number(1e-6)))
        return self.node("Mul", self.about_one(width), self.node("Mul", x, self.node("Div", self.number(1.0), root)))

    def group_norm(self, x: str, dims: tuple[int, ...], groups: int) -> str:
        """`nn.GroupNorm` as exported before opset 21."""
        parted = self.node("Reshape", x, self.sizes(0, groups, -1))
        ones, zeros = self.weight(np.ones(groups)), self.weight(np.zeros(groups))
        normal = self.node(
            "Reshape", self.node("InstanceNormalization", parted, ones, zeros, epsilon=1e-5), self.sizes(*dims)
        )
        ends = (1,) * (len(dims) - 2)
        scaled = self.node("Mul", normal, self.about_one(dims[1], *ends))
        return self.node("Add", scaled, self.noise(dims[1], *ends, scale=0.1))

    def about_one(self, *shape: int) -> str:
        """A scale."""
        return self.weight(1 + 0.1 * self.random.standard_normal(shape, np.float32))

    def attention(self, q: str, k: str, v: str, width: int, mask: str = "") -> str:
        """`scaled_dot_product_attention` with heads in the second axis."""
        root = self.number(width**-0.25)
        scores = self.node("MatMul", self.node("Mul", q, root), self.node("Mul", self.turned(k, 0, 1, 3, 2), root))
        if mask:
            scores = self.node("Add", scores, mask)
        return self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
