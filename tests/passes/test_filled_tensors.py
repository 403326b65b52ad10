"""Numbers converted when a model is optimized, against the runtime's own conversion of the tensors."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.manager import PassManager

TYPES = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT64, TensorProto.BOOL,
)  # fmt: skip
NUMBERS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 127.0, 128.0, -129.0, 256.0, 65504.0, 65520.0, 2.0**24 + 1, 2.0**31, 2.0**63, 2.0**64,
    1e-8, 1e30, 1e300, np.nan, np.inf, -np.inf,
)  # fmt: skip


def filled(source: int, target: int, number: float, shape: list[int]) -> onnx.ModelProto:
    """A tensor of one number, then a `Cast`."""
    with np.errstate(all="ignore"):
        value = numpy_helper.from_array(np.array([number]).astype(helper.tensor_dtype_to_np_dtype(source)))
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["f"], value=value),
        helper.make_node("Cast", ["f"], ["y"], to=target),
    ]
    inputs = [helper.make_tensor_value_info("s", TensorProto.INT64, [len(shape)])]
    outputs = [helper.make_tensor_value_info("y", target, ["a", "b"][: len(shape)])]
    graph = helper.make_graph(nodes, "filled", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def run(model: onnx.ModelProto, shape: list[int]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"s": np.array(shape, np.int64)})[0])


@pytest.mark.parametrize("source", TYPES, ids=TensorProto.DataType.Name)
def test_number_of_the_other_type_is_what_the_runtime_makes_of_it(source: int) -> None:
    joined = 0
    for target, number in itertools.product(TYPES, NUMBERS):
        shape = [2, 0] if number == 0.5 else [2, 3]
        model = filled(source, target, number, shape)
        result = PassManager(passes="fuse_cast_into_constant_of_shape", strict=True).run(model)
        if not result.changed:
            continue
        joined += 1
        assert [node.op_type for node in result.model.graph.node] == ["ConstantOfShape"]
        expected, got = run(model, shape), run(result.model, shape)
        assert (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    assert joined >= len(TYPES)
