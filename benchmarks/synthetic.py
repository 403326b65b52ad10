"""Synthetic graphs of any size, for scaling: the same bytes for the same arguments, 100,000 nodes in about a second.

from benchmarks.synthetic import MIXES, build
model = build("conv", 10_000)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

Dims = Sequence[int | str]


class Builder:
    """Appends nodes to a model; plain protos, since `onnx.helper` takes most of the time at this size."""

    def __init__(self, opset: int = 17) -> None:
        self.model = ModelProto(ir_version=8, producer_name="graphopt.benchmarks")
        self.model.opset_import.add(domain="", version=opset)
        self.graph = self.model.graph
        self.graph.name = "synthetic"
        self.nodes: list[NodeProto] = []
        self.random = np.random.default_rng(0)
        self._cache: dict[bytes, str] = {}

    def input(self, name: str, dims: Dims) -> str:
        """A float input; returns its name."""
        self._describe(self.graph.input.add(), name, dims)
        return name

    def output(self, name: str, dims: Dims) -> None:
        """Make a value a graph output."""
        self._describe(self.graph.output.add(), name, dims)

    @staticmethod
    def _describe(info: ValueInfoProto, name: str, dims: Dims) -> None:
        info.name = name
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        shape = info.type.tensor_type.shape
        for dim in dims:
            shape.dim.add(**({"dim_value": dim} if isinstance(dim, int) else {"dim_param": dim}))

    def weight(self, array: np.ndarray | float | list[int], *, share: bool = False) -> str:
        """A new initializer; `share` gives equal ones one name, as exporters do for their constants."""
        value = np.asarray(array, np.int64 if isinstance(array, list | int) else np.float32)
        data = value.tobytes()
        key = data + repr((value.shape, value.dtype.char)).encode()
        if share and key in self._cache:
            return self._cache[key]
        kind = TensorProto.INT64 if value.dtype == np.int64 else TensorProto.FLOAT
        name = f"w{len(self.graph.initializer)}"
        self.graph.initializer.append(TensorProto(name=name, data_type=kind, dims=value.shape, raw_data=data))
        if share:
            self._cache[key] = name
        return name

    def noise(self, *shape: int, scale: float = 1.0) -> str:
        """A new random initializer; returns its name."""
        return self.weight(self.random.standard_normal(shape, np.float32) * np.float32(scale))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; returns the name of its output."""
        at = len(self.nodes)
        out = f"v{at}"
        encoded = [_attribute(name, value) for name, value in attributes.items()]
        self.nodes.append(NodeProto(op_type=op, name=f"n{at}", input=inputs, output=[out], attribute=encoded))
        return out

    def finish(self) -> ModelProto:
        """The model with all its nodes."""
        self.graph.node.extend(self.nodes)
        return self.model


def _attribute(name: str, value: Any) -> AttributeProto:
    if isinstance(value, int):
        return AttributeProto(name=name, type=AttributeProto.INT, i=value)
    if isinstance(value, float):
        return AttributeProto(name=name, type=AttributeProto.FLOAT, f=value)
    return AttributeProto(name=name, type=AttributeProto.INTS, ints=value)


def _elementwise(b: Builder, count: int) -> None:
    """A chain of cheap operators with the no-ops that exporters leave: about half the nodes can be removed."""
    x = b.input("x", ("n", 16))
    one, zero = b.weight(1.0), b.weight(0.0)
    while len(b.nodes) < count:
        x = b.node("Add", x, b.noise(16))
        x = b.node("Identity", x)
        x = b.node("Tanh", x)
        x = b.node("Mul", x, one)
        x = b.node("Cast", x, to=1)
        x = b.node("Relu", b.node("Relu", x))
        x = b.node("Add", x, zero)
        x = b.node("Transpose", b.node("Transpose", x, perm=(1, 0)), perm=(1, 0))
        x = b.node("Sigmoid", x)
    b.output(x, ("n", 16))


def _conv(b: Builder, count: int) -> None:
    """Residual blocks of convolution, BatchNormalization and Relu, with tiny weights."""
    x = b.input("x", ("n", 8, 8, 8))
    bounds = (b.weight(0.0), b.weight(6.0))
    while len(b.nodes) < count:
        y = x
        for _ in range(2):
            y = b.node("Conv", y, b.noise(8, 8, 1, 1, scale=0.3), kernel_shape=(1, 1))
            variance = b.weight(b.random.uniform(0.5, 1.5, 8))
            y = b.node("BatchNormalization", y, b.noise(8), b.noise(8), b.noise(8), variance)
            y = b.node("Relu", y)
        x = b.node("Clip", b.node("Add", x, y), *bounds)  # bounded, since the sum would overflow with depth
    b.output(x, ("n", 8, 8, 8))


def _transformer(b: Builder, count: int) -> None:
    """Transformer blocks as older opsets express them: LayerNormalization and Gelu written out, two heads of eight."""
    x = b.input("x", ("n", 4, 16))
    while len(b.nodes) < count:
        x = b.node("Add", x, _attention(b, _norm(b, x)))
        h = b.node("Add", b.node("MatMul", _norm(b, x), b.noise(16, 32, scale=0.2)), b.noise(32))
        erf = b.node("Erf", b.node("Div", h, b.weight(2.0**0.5)))
        h = b.node("Mul", b.node("Mul", h, b.node("Add", erf, b.weight(1.0))), b.weight(0.5))
        x = b.node("Add", x, b.node("Add", b.node("MatMul", h, b.noise(32, 16, scale=0.2)), b.noise(16)))
    b.output(x, ("n", 4, 16))


def _norm(b: Builder, x: str) -> str:
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=(-1,)))
    variance = b.node("ReduceMean", b.node("Pow", d, b.weight(2.0)), axes=(-1,))
    y = b.node("Div", d, b.node("Sqrt", b.node("Add", variance, b.weight(1e-5))))
    return b.node("Add", b.node("Mul", y, b.noise(16)), b.noise(16))


def _attention(b: Builder, x: str) -> str:
    heads = []
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        h = b.node("Add", b.node("MatMul", x, b.noise(16, 16, scale=0.25)), b.noise(16))
        h = b.node("Reshape", h, b.weight([0, 0, 2, 8], share=True))
        heads.append(b.node("Transpose", h, perm=perm))
    scores = b.node("Div", b.node("MatMul", heads[0], heads[1]), b.weight(8.0**0.5))
    y = b.node("MatMul", b.node("Softmax", scores, axis=-1), heads[2])
    y = b.node("Reshape", b.node("Transpose", y, perm=(0, 2, 1, 3)), b.weight([0, 0, 16], share=True))
    return b.node("Add", b.node("MatMul", y, b.noise(16, 16, scale=0.25)), b.noise(16))


def _shapes(b: Builder, count: int) -> None:
    """A view on a dynamic shape, repeated: Shape, Gather, Unsqueeze, Concat, Reshape."""
    x = b.input("x", ("n", "m", 16))
    zero, one = b.weight(0, share=True), b.weight(1, share=True)
    while len(b.nodes) < count:
        dims = []
        for index in (zero, one):
            dim = b.node("Gather", b.node("Shape", x), b.node("Cast", index, to=7))
            dims.append(b.node("Unsqueeze", dim, b.weight([0], share=True)))
        shape = b.node("Concat", *dims, b.weight([2], share=True), b.weight([8], share=True), axis=0)
        y = b.node("Tanh", b.node("Reshape", x, shape))
        shape = b.node("Concat", *dims, b.weight([16], share=True), axis=0)
        x = b.node("Add", b.node("Reshape", y, shape), b.noise(16))
    b.output(x, ("n", "m", 16))


def _still(b: Builder, count: int) -> None:
    """Nothing to rewrite: the cost of an optimizer without a gain."""
    x, y, z = (b.input(name, ("n", 16)) for name in "xyz")
    while len(b.nodes) < count:
        x = b.node("Add", b.node("Tanh", x), y)
        x = b.node("Mul", b.node("Sin", x), z)
    b.output(x, ("n", 16))


def _fanout(b: Builder, count: int) -> None:
    """One value with a reader for every other node, a quarter of them equal, joined by a tree of additions."""
    hub = b.node("Relu", b.input("x", ("n", 16)))
    shared = [b.noise(16) for _ in range(8)]
    level = [
        b.node("Mul", hub, shared[at // 4 % 8] if at % 4 == 0 else b.noise(16)) for at in range(max(count // 2, 2))
    ]
    while len(level) > 1:
        level = [b.node("Add", *pair) if len(pair) == 2 else pair[0] for pair in _pairs(level)]
    b.output(level[0], ("n", 16))


def _pairs(items: list[str]) -> list[list[str]]:
    return [items[at : at + 2] for at in range(0, len(items), 2)]


MIXES: dict[str, Callable[[Builder, int], None]] = {
    "elementwise": _elementwise,
    "conv": _conv,
    "transformer": _transformer,
    "shapes": _shapes,
    "still": _still,
    "fanout": _fanout,
}


def build(mix: str, nodes: int) -> ModelProto:
    """A valid model of about `nodes` nodes (at least as many as one block of the mix has)."""
    builder = Builder()
    MIXES[mix](builder, nodes)
    return builder.finish()
