"""Random linear operators and small networks whose weights and scales have magnitudes from ordinary to denormal."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


def linear_model(seed: int) -> onnx.ModelProto:
    """One `Conv`, `ConvTranspose`, `Gemm` or `MatMul`, of float or double, with a bias or without."""
    rng = np.random.default_rng(seed)
    op = ["Conv", "ConvTranspose", "Gemm", "MatMul"][seed % 4]
    dtype = np.dtype(np.float64 if op in ("Gemm", "MatMul") and rng.random() < 0.5 else np.float32)
    outputs, channels = 2 * int(rng.integers(1, 4)), 2 * int(rng.integers(1, 5))
    attrs: dict[str, int | float] = {}
    if op in ("Conv", "ConvTranspose"):
        group = int(rng.choice([1, 2]))
        attrs["group"] = group
        dims = [outputs, channels // group, 3, 3] if op == "Conv" else [channels, outputs // group, 3, 3]
        x = [2, channels, 6, 6]
    else:
        attrs = {"transB": int(rng.integers(2)), "alpha": 2.0, "beta": 0.5} if op == "Gemm" else {}
        dims = [outputs, channels] if attrs.get("transB") else [channels, outputs]
        x = [5, channels]
    tensors = [numpy_helper.from_array(_magnitudes(rng, dims, dtype), "w")]
    if op != "MatMul" and rng.random() < 0.6:
        bias = rng.standard_normal(outputs) * (rng.random(outputs) < 0.7)
        tensors.append(numpy_helper.from_array(bias.astype(dtype), "b"))
    node = helper.make_node(op, ["x", *(tensor.name for tensor in tensors)], ["y"], **attrs)
    return _model([node], tensors, x, dtype)


def _magnitudes(rng: np.random.Generator, dims: list[int], dtype: np.dtype) -> np.ndarray:
    """Ordinary weights, of which single ones and whole outputs are next to nothing."""
    low = np.log10(np.finfo(dtype).smallest_subnormal)
    weight = rng.standard_normal(dims)
    small = rng.standard_normal(dims) * 10.0 ** rng.uniform(low, 0.8 * low, dims)
    lot = rng.random(dims) < 0.2
    lot |= rng.random((dims[0], *(1,) * (len(dims) - 1))) < 0.2
    lot |= rng.random((1, dims[1], *(1,) * (len(dims) - 2))) < 0.2
    return np.where(lot, small, weight).astype(dtype)


def network(seed: int) -> onnx.ModelProto:
    """Convolutions with batch normalization, activations, residuals, and scales that may undo what went before."""
    rng = np.random.default_rng([7, seed])
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    channels = 8
    value = "x"

    def weight(array: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(np.asarray(array, np.float32), f"w{len(tensors)}"))
        return tensors[-1].name

    def add(op: str, *inputs: str, **attrs: object) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], **attrs))
        return nodes[-1].output[0]

    for _ in range(int(rng.integers(2, 6))):
        before = value
        group = int(rng.choice([1, 1, 2, channels]))
        kernel = rng.standard_normal((channels, channels // group, 3, 3)) / np.sqrt(9 * channels / group)
        value = add("Conv", value, weight(kernel), group=group, pads=[1, 1, 1, 1])
        scale = np.where(rng.random(channels) < 0.4, 10.0 ** rng.uniform(-44, -20, channels), 1.0)
        shift = rng.normal(0, 0.3, channels) * (rng.random(channels) < 0.5)
        statistics = weight(rng.normal(0, 0.1, channels)), weight(rng.uniform(0.5, 2, channels))
        value = add("BatchNormalization", value, weight(scale), weight(shift), *statistics)
        activation = str(rng.choice(["Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Identity", "Floor"]))
        value = add(activation, value)
        if rng.random() < 0.3:
            value = add("Add", value, before)
        if rng.random() < 0.2:
            value = add("Mul", value, weight(1 / np.maximum(scale, 1e-36).reshape(-1, 1, 1)))
    nodes[-1].output[0] = "y"
    return _model(nodes, tensors, [1, channels, 6, 6], np.dtype(np.float32))


def _model(
    nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], dims: list[int], dtype: np.dtype
) -> onnx.ModelProto:
    made = [helper.make_tensor_value_info(name, _TYPES[dtype], size) for name, size in (("x", dims), ("y", None))]
    graph = helper.make_graph(nodes, "g", made[:1], made[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)
