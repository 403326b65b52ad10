"""Grows quantized networks value by value."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
Grown = tuple[onnx.ModelProto, dict[str, int]]
"""A model and sizes for its symbolic dimensions."""

TYPES: dict[str, Any] = {"uint8": np.uint8, "int8": np.int8, "uint16": np.uint16, "int16": np.int16}


@dataclass(frozen=True)
class Parameters:
    """Quantization parameters: scale and zero point."""

    scale: np.ndarray
    zero: np.ndarray | None
    dtype: str


class QuantizedBuilder:
    """Grows a network; `values` are dequantized floats or float inputs, with their shapes and parameters."""

    def __init__(self, seed: int, exact: bool, opset: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.exact = exact
        self.opset = opset or self.rng.choice([10, 11, 13, 13, 17, 19, 21, 21, 23])
        self.signed = self.rng.random() < 0.3
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: list[tuple[str, Shape, Parameters | None]] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.sizes: dict[str, int] = {}
        self.count = 0

    def name(self) -> str:
        """A name that is not taken."""
        self.count += 1
        return f"v{self.count}"

    def sometimes(self, chance: float = 0.5) -> bool:
        """True with this probability."""
        return self.rng.random() < chance

    def const(self, array: Any) -> str:
        """A constant."""
        name = self.name()
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, op: str, inputs: Sequence[str], outputs: int = 1, **attrs: Any) -> str:
        """An operator, with its domain before `::`; returns its first output."""
        names = [self.name() for _ in range(outputs)]
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        domain, _, kind = op.rpartition("::")
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attrs))
        return names[0]

    def input(self, shape: Shape, dtype: int = TensorProto.FLOAT) -> str:
        """A graph input, whose first dimension may be symbolic."""
        name = f"x{len(self.inputs)}"
        symbol = f"n{len(self.inputs)}"
        declared = [symbol if i == 0 and self.sometimes(0.2) else d for i, d in enumerate(shape)]
        self.sizes[symbol] = shape[0]
        self.inputs.append(helper.make_tensor_value_info(name, dtype, declared))
        return name

    def output(self, name: str, rank: int, dtype: int = TensorProto.FLOAT) -> None:
        """Make a value a graph output."""
        if name not in {o.name for o in self.outputs} | {i.name for i in self.inputs}:
            self.outputs.append(helper.make_tensor_value_info(name, dtype, [None] * rank))

    def grow(self, kinds: Sequence[Callable[[Self], None]], steps: int, attempts: int) -> None:
        """Add up to `steps` values of these kinds, in at most `steps * attempts` attempts."""
        most = len(self.values) + steps
        for _ in range(steps * attempts):
            if len(self.values) >= most:
                break
            self.rng.choice(kinds)(self)

    def numbers(self, shape: Shape, low: int, high: int, dtype: Any) -> np.ndarray:
        """Random integers in a range, in any element type."""
        drawn = [self.rng.randint(low, high) for _ in range(int(np.prod(shape)))]
        return np.array(drawn, dtype).reshape(shape)

    # Parameters

    def scale(self, count: int = 0) -> np.ndarray:
        """One scale, as a scalar or of shape (1,), or `count` of them."""
        drawn = [
            2.0 ** -self.rng.randint(2, 6)
            if self.exact
            else self.rng.choice([0.003, 0.02, 0.05, 0.11, 0.3]) * self.rng.uniform(0.9, 1.1)
            for _ in range(max(count, 1))
        ]
        if self.sometimes(0.06):
            drawn[0] = -drawn[0]
        return np.array(drawn, np.float32).reshape((count,) if count else self.rng.choice([(), (1,)]))

    def parameters(self, same: Parameters | None = None) -> Parameters:
        """Parameters of an activation; sometimes those of its operand."""
        if same is not None and self.sometimes(0.45):
            return same
        dtype = "int8" if self.signed != self.sometimes(0.05) else "uint8"
        if self.opset >= 21 and self.sometimes(0.04):
            dtype = self.rng.choice(["uint16", "int16"])
        scale = self.scale()
        if dtype == "uint8" and self.sometimes(0.15):
            return Parameters(scale, None, dtype)
        info = np.iinfo(TYPES[dtype])
        # With an odd zero point kernels round ties the other way: they are even only together with it.
        top = info.max - 1 if self.exact else info.max
        zero = self.rng.choice([0, info.min, top, (info.min + info.max + 1) // 2, info.min + 100])
        return Parameters(scale, np.array(zero, TYPES[dtype]).reshape(scale.shape), dtype)

    def unlike(self, same: Parameters | None) -> Parameters | None:
        """Parameters that an average may share with its operand: with equal scales, a mean may be a tie."""
        return same if self.exact else None

    def quantize(self, x: str, p: Parameters, axis: int | None = None) -> str:
        """Quantize a value."""
        inputs = [x, self.const(p.scale), *([self.const(p.zero)] if p.zero is not None else [])]
        return self.op("QuantizeLinear", inputs, **self._axis(p, axis))

    def dequantize(self, x: str, p: Parameters, axis: int | None = None) -> str:
        """Dequantize a value."""
        inputs = [x, self.const(p.scale), *([self.const(p.zero)] if p.zero is not None else [])]
        return self.op("DequantizeLinear", inputs, **self._axis(p, axis))

    def _axis(self, p: Parameters, axis: int | None) -> dict[str, int]:
        return {} if axis is None or self.opset < 13 or p.scale.shape in ((), (1,)) else {"axis": axis}

    def finish(self, x: str, shape: Shape, same: Parameters | None = None) -> None:
        """Quantize and dequantize the result of an operator, or leave it."""
        if self.sometimes(0.08):
            self.values.append((x, shape, None))
            return
        p = self.parameters(same)
        q = self.quantize(x, p)
        self.values.append((self.dequantize(q, p), shape, p))
        if self.sometimes(0.1):
            self.values.append((self.dequantize(q, p), shape, p))
        if self.sometimes(0.04):
            self.output(q, len(shape), helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[p.dtype])))

    def pick(self, rank: int | None = None) -> tuple[str, Shape, Parameters | None]:
        """One of the latest values."""
        near = [v for v in self.values[-5:] if rank is None or len(v[1]) == rank]
        return self.rng.choice(near) if near else self.rng.choice(self.values)

    def weight(self, shape: Shape, axis: int) -> tuple[str, np.ndarray]:
        """A dequantized weight and its scales: constant integers, or floats that are quantized first."""
        each = self.opset >= 13 and self.sometimes()
        count = shape[axis] if each else 0
        scale = self.scale(count)
        dtype = np.uint8 if self.sometimes(0.2) else np.int8
        zero = None
        if dtype is np.uint8 or self.sometimes(0.7):
            middle = 0 if dtype is np.int8 and self.sometimes(0.8) else 3 if dtype is np.int8 else 120
            zero = np.full(scale.shape, middle, dtype)
        p = Parameters(scale, zero, dtype.__name__)
        if self.sometimes(0.2) and not (dtype is np.int8 and zero is None):  # as in quantization-aware training
            steps = self.numbers(shape, -60, 60, np.float32)
            wide = scale.reshape([-1 if a == axis else 1 for a in range(len(shape))]) if each else scale.reshape(-1)[:1]
            q = self.quantize(self.const((steps * wide).astype(np.float32)), p, axis)
        else:
            low, high = (0, 255) if dtype is np.uint8 else self.rng.choice([(-128, 127), (-64, 64)])
            q = self.const(self.numbers(shape, low, high, dtype))
        return self.dequantize(q, p, axis), scale

    def bias(self, count: int, x: Parameters | None, weights: np.ndarray) -> str:
        """A bias: quantized with the scale of the products or another one, float, or left out."""
        kind = self.rng.randrange(5)
        if kind == 0:
            return ""
        if kind == 1 or x is None:
            return self.const(np.asarray(self.numbers((count,), -8, 8, np.float32) / 4, np.float32))
        units = (x.scale.reshape(-1) * weights.reshape(-1)).astype(np.float32)
        if kind == 2 and self.exact:
            units = units / 2
        scale = units if units.size > 1 else units.reshape(self.rng.choice([(), (1,)]))
        most = 2**18 if self.exact or self.sometimes(0.8) else 2**31 - 1
        ints = self.numbers((count,), -most, most, np.int32)
        zero = None if self.sometimes() else np.zeros(scale.shape, np.int32)
        return self.dequantize(self.const(ints), Parameters(scale, zero, "int32"), 0)


def model(b: QuantizedBuilder) -> Grown:
    """The built model, and the sizes of its symbolic dimensions."""
    imports = [helper.make_opsetid("", b.opset)]
    if any(node.domain == "com.microsoft" for node in b.nodes):
        imports.append(helper.make_opsetid("com.microsoft", 1))
    graph = helper.make_graph(b.nodes, "g", b.inputs, b.outputs, b.initializers)
    return helper.make_model(graph, opset_imports=imports, ir_version=8 if b.opset < 21 else 10), b.sizes
