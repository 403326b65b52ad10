"""Quantized forms of a network, as users' tools write them.

`u8s8` and the like name the types of activations and weights in quantize and dequantize operators, `pc` weights with
per-channel scales; `s7` are weights of 7 bits, from the runtime's `reduce_range` for processors without VNNI; `qop` is
the operator-oriented form, `dyn` computes scales at run time, and `qat` is the export of quantization-aware training:
float weights before their QuantizeLinear, and float biases; `qat1` is that with parameters of shape [1].
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

SCHEMES = ("u8s8", "u8s8pc", "u8s7", "u8s7pc", "s8s8", "s8s8pc", "u8u8", "qop", "dyn", "qat", "qat1")
_STATIC = {"u": "QUInt8", "s": "QInt8"}
_TYPES = {"qop": "u8u8", "qat": "u8s8pc", "qat1": "u8s8pc", "u8s7": "u8s8", "u8s7pc": "u8s8pc"}
_OPSET = 17


def quantized(source: ModelProto, scheme: str, feed: dict[str, Any]) -> ModelProto:
    """A quantized form of a model.

    Args:
        source: the model, in floats.
        scheme: one of `SCHEMES`.
        feed: the inputs from which the ranges of activations are computed.
    """
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]  # not annotated
        feeds = iter([feed])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        start, prepared, target = (str(Path(folder) / f"{name}.onnx") for name in ("start", "prepared", "target"))
        onnx.save(source, start)
        quant_pre_process(start, prepared, skip_symbolic_shape=True)
        if scheme == "dyn":
            q.quantize_dynamic(prepared, target)
        else:
            types = _TYPES.get(scheme, scheme)
            q.quantize_static(
                prepared, target, Reader(),
                quant_format=q.QuantFormat.QOperator if scheme == "qop" else q.QuantFormat.QDQ,
                activation_type=getattr(q.QuantType, _STATIC[types[0]]),
                weight_type=getattr(q.QuantType, _STATIC[types[2]]), per_channel=types.endswith("pc"),
                reduce_range=scheme.startswith("u8s7"),
            )  # fmt: skip
        model = onnx.load(target)
    if scheme.startswith("qat"):
        _train(model)
    if scheme == "qat1":
        _vectors(model.graph)
    return model


def _train(model: ModelProto) -> None:
    """Convert a model quantized after training to the form of quantization-aware training."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    random = np.random.default_rng(0)
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            integers = numpy_helper.to_array(constants[node.input[0]])
            scale = numpy_helper.to_array(constants[node.input[1]])
            axis = helper.get_node_attr_value(node, "axis") if node.attribute else 0
            wide = scale.reshape([-1 if a == axis else 1 for a in range(integers.ndim)]) if scale.size > 1 else scale
            if integers.dtype == np.int32:
                graph.initializer.append(numpy_helper.from_array((integers * wide).astype(np.float32), node.output[0]))
                continue
            # Between the steps and beyond the last one: trained values do not lie on them.
            floats = (integers + random.uniform(-0.4, 0.4, integers.shape)) * wide
            source = f"{node.output[0]}_float"
            graph.initializer.append(numpy_helper.from_array(floats.astype(np.float32), source))
            quantize = NodeProto()
            quantize.CopyFrom(node)
            quantize.op_type, quantize.name = "QuantizeLinear", f"{node.name}_quantize"
            quantize.input[0], quantize.output[0] = source, f"{node.output[0]}_integers"
            node.input[0] = quantize.output[0]
            nodes.append(quantize)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    _drop_unread(graph)


def _vectors(graph: GraphProto) -> None:
    """Reshape scalar parameters to [1]."""
    names = {name for n in graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear") for name in n.input[1:]}
    for tensor in graph.initializer:
        if tensor.name in names and not tensor.dims:
            tensor.dims.append(1)


def _drop_unread(graph: GraphProto) -> None:
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
