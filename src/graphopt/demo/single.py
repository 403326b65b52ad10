"""One convolution, with and without a pool: two models with unusual timing when the layout is changed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_SEED = 15180
_IN, _OUT, _KERNEL, _SIZE = 3, 32, 5, 224


def conv_alone() -> onnx.ModelProto:
    """A convolution from 3 to 32 channels, kernel 5, on one 224x224 image; opset 13."""
    return _model("conv_alone", pool=False)


def conv_maxpool() -> onnx.ModelProto:
    """The same convolution followed by a 2x2 max pool."""
    return _model("conv_maxpool", pool=True)


def _model(name: str, *, pool: bool) -> onnx.ModelProto:
    side = _SIZE - _KERNEL + 1
    nodes = [
        helper.make_node(
            "Conv",
            ["input", "conv.weight", "conv.bias"],
            ["/conv/Conv_output_0" if pool else "output"],
            name="/conv/Conv",
            dilations=[1, 1],
            group=1,
            kernel_shape=[_KERNEL, _KERNEL],
            pads=[0, 0, 0, 0],
            strides=[1, 1],
        )
    ]
    if pool:
        side //= 2
        nodes.append(
            helper.make_node(
                "MaxPool",
                ["/conv/Conv_output_0"],
                ["output"],
                name="/pool/MaxPool",
                kernel_shape=[2, 2],
                strides=[2, 2],
            )
        )
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, _IN, _SIZE, _SIZE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, _OUT, side, side])],
        _parameters(),
    )
    return helper.make_model(
        graph, producer_name="graphopt.demo", ir_version=7, opset_imports=[helper.make_opsetid("", 13)]
    )


def _parameters() -> list[onnx.TensorProto]:
    rng = np.random.default_rng(_SEED)
    deviation = np.sqrt(2.0 / (_IN * _KERNEL * _KERNEL))
    weight = (rng.standard_normal((_OUT, _IN, _KERNEL, _KERNEL)) * deviation).astype(np.float32)
    bias = rng.normal(0.0, 0.1, _OUT).astype(np.float32)
    return [numpy_helper.from_array(weight, "conv.weight"), numpy_helper.from_array(bias, "conv.bias")]
