"""What inference is told of contrib operators agrees with what the runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from graphopt.analysis import infer_types
from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.ir import Model, TensorType

CONTRIB = "com.microsoft"
S, Z = np.float32(0.1), np.uint8(3)
IMAGE, LAST = np.ones((2, 3, 5, 4), np.uint8), np.ones((2, 5, 4, 3), np.uint8)
FLOATS, MATRIX = np.ones((2, 5, 3), np.float32), np.ones((5, 3), np.uint8)
KERNEL, WEIGHT, FLOAT_WEIGHT = np.ones((8, 3, 2, 2), np.int8), np.ones((3, 8), np.int8), np.ones((3, 8), np.float32)
WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2]}

CASES: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    ("QLinearConv", [IMAGE, S, Z, KERNEL, S, np.int8(0), S, Z], {"pads": [1, 1, 1, 1]}),
    ("QLinearConv", [LAST, S, Z, KERNEL, S, np.int8(0), S, Z], {"channels_last": 1, "strides": [2, 1]}),
    ("QLinearConv", [LAST[:, 0], S, Z, KERNEL[..., 0], S, np.int8(0), S, Z], {"channels_last": 1, "pads": [1, 0]}),
    ("QLinearConv", [LAST[:, None], S, Z, KERNEL[:, :, None], S, np.int8(0), S, Z], {"channels_last": 1}),
    ("NhwcMaxPool", [LAST], WINDOW),
    ("NhwcMaxPool", [LAST[:, 0]], {"kernel_shape": [3]}),
    ("NhwcMaxPool", [LAST[:, None]], {"kernel_shape": [1, 2, 2]}),
    ("QLinearAveragePool", [IMAGE, S, Z, S, Z], WINDOW),
    ("QLinearAveragePool", [LAST, S, Z, S, Z], {**WINDOW, "channels_last": 1}),
    ("QLinearGlobalAveragePool", [IMAGE, S, Z, S, Z], {}),
    ("QLinearGlobalAveragePool", [LAST, S, Z, S, Z], {"channels_last": 1}),
    ("QLinearGlobalAveragePool", [LAST[:, 0], S, Z, S, Z], {"channels_last": 1}),
    ("QLinearAdd", [IMAGE, S, Z, IMAGE[:, :1], S, Z, S, Z], {}),
    ("QLinearMul", [IMAGE[0], S, Z, IMAGE, S, Z, S, Z], {}),
    ("QLinearConcat", [S, Z, IMAGE, S, Z, IMAGE[:, :2], S, Z], {"axis": 1}),
    ("QLinearSigmoid", [IMAGE, S, Z, S, Z], {}),
    ("QLinearLeakyRelu", [IMAGE, S, Z, S, Z], {"alpha": 0.1}),
    ("QLinearSoftmax", [IMAGE, S, Z, S, Z], {"axis": -1, "opset": 13}),
    ("QGemm", [MATRIX, S, Z, WEIGHT, S, np.int8(0), None, S, Z], {}),
    ("QGemm", [MATRIX, S, Z, WEIGHT, S, np.int8(0), None], {}),
    ("QGemm", [MATRIX.T, S, Z, WEIGHT.T, S, np.int8(0), None, S, Z], {"transA": 1, "transB": 1}),
    ("MatMulIntegerToFloat", [MATRIX, WEIGHT, S, S], {}),
    ("DynamicQuantizeMatMul", [FLOATS, WEIGHT, S], {}),
    ("DequantizeLinear", [IMAGE, S, Z], {}),
    ("QuantizeLinear", [FLOATS, S, np.int8(0)], {}),
    ("FusedMatMul", [FLOATS, FLOAT_WEIGHT], {"alpha": 0.5}),
    ("FusedMatMul", [FLOATS, np.ones((2, 8, 3), np.float32)], {"transB": 1}),
    ("FusedGemm", [FLOATS[0].T.copy(), FLOAT_WEIGHT.T.copy(), None], {"transA": 1, "transB": 1, "activation": "Relu"}),
    ("FusedConv", [IMAGE.astype(np.float32), KERNEL.astype(np.float32)], {"activation": "Relu", "dilations": [2, 1]}),
    ("Gelu", [FLOATS], {}),
    ("BiasGelu", [FLOATS, FLOATS[0, 0]], {}),
    ("FastGelu", [FLOATS, FLOATS[0, 0]], {}),
    ("QuickGelu", [FLOATS], {"alpha": 1.0}),
]


def model_of(op: str, operands: list[np.ndarray | None], attrs: dict[str, Any]) -> onnx.ModelProto:
    names, inputs, constants = [], [], []
    for number, operand in enumerate(operands):
        names.append("" if operand is None else f"v{number}")
        if operand is None:
            continue
        if operand.ndim > 1:
            dtype = helper.np_dtype_to_tensor_dtype(operand.dtype)
            inputs.append(helper.make_tensor_value_info(names[-1], dtype, operand.shape))
        else:
            constants.append(numpy_helper.from_array(np.asarray(operand), names[-1]))
    node = helper.make_node(op, names, ["made"], domain=CONTRIB, **attrs)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="made")], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("op", "operands", "attrs"), CASES, ids=[f"{case[0]}{n}" for n, case in enumerate(CASES)])
def test_types_are_those_of_the_runtime(op: str, operands: list[np.ndarray | None], attrs: dict[str, Any]) -> None:
    proto = model_of(op, operands, attrs)
    model = Model.load(proto)
    infer_types(model)
    made = model.graph.outputs[0]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # The runtime wants the element type of an output to be declared.
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("made", made.dtype or 0, None))
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {f"v{n}": operand for n, operand in enumerate(operands) if operand is not None and operand.ndim > 1}
    (result,) = session.run(None, feed)
    made.type = TensorType(made.dtype or 0, None)
    ShapeAnalysis(model).refine()
    assert made.shape in (None, result.shape)  # what is known of each operator by itself, as beside a loop
    infer_types(model)
    assert made.dtype == helper.np_dtype_to_tensor_dtype(result.dtype)
    assert made.shape == result.shape


def test_operands_that_are_missing_are_no_error() -> None:
    model = Model.load(model_of("QLinearAdd", [IMAGE], {}))
    infer_types(model)
    assert model.graph.outputs[0].shape is None


@pytest.mark.parametrize("opset", [18, 21, 23])
def test_what_follows_group_normalization_is_known(opset: int) -> None:
    """Of the operator of opset 21 the standard's inference says nothing, nor of anything that comes after it."""
    model = Model.load(
        onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : {opset}]> g (float[n,4,6,5] x) => (y)
            <float[2] small = {{1, 1}}, float[4] large = {{1, 1, 1, 1}}, int64[2] shape = {{0, -1}}> {{
              normal = GroupNormalization <num_groups = 2> (x, {"small, small" if opset < 21 else "large, large"})
              pooled = GlobalAveragePool (normal)
              y = Reshape (pooled, shape)
            }}"""
        )
    )
    infer_types(model)
    assert model.graph.outputs[0].shape == ("n", 4)
