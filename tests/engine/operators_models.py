"""Models of one operator, which the tests of operator views read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper

from graphopt.ir import Model, Node, Value
from graphopt.ir.forms import MOVED, placed
from graphopt.rewrite import Driver, Log, OpRule, Outcome, Rewriter

OPSETS = (7, 9, 10, 11, 12, 13, 17, 18, 21, min(defs.onnx_opset_version(), 24))
X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)


def model(op: str, opset: int, outputs: int = 1, sizes: tuple[int, ...] = X.shape, **settings: Any) -> onnx.ModelProto:
    """One operator of `x`, with settings wherever the opset has them."""
    operands, attrs = placed(op, opset, ["x"], settings, np.dtype(np.float32)) if op in MOVED else (["x"], settings)
    names, constants = [], []
    for index, operand in enumerate(operands):
        if isinstance(operand, np.ndarray):
            constants.append(numpy_helper.from_array(operand, f"c{index}"))
            names.append(f"c{index}")
        else:
            names.append(operand or "")
    attrs = {key: value for key, value in attrs.items() if value is not None}
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op, names, results, **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
    ys = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", [x], ys, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def run(proto: onnx.ModelProto, x: np.ndarray = X) -> list[np.ndarray]:
    """What the runtime computes, with its optimizations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def rewritten(proto: onnx.ModelProto, write: Callable[[Node, Rewriter], Any]) -> onnx.ModelProto:
    """The model with its node read and written anew."""
    kind = proto.graph.node[0].op_type

    class Again(OpRule):
        """Write a node anew."""

        name = "again"
        ops = (kind,)

        def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
            if node.proto is None:
                return None
            result = write(node, rw)
            return rw.replace(node, [result] if isinstance(result, Value) else list(result))

    loaded = Model.load(proto)
    driver = Driver(loaded, Log(listen=True), check=True, strict=True)
    driver.infer()
    assert driver.run_rules([Again()]) == 1, [str(miss) for miss in driver.log.near_misses.values()]
    return loaded.flush()


def with_operands(op: str, opset: int, attrs: dict[str, Any], operands: list[np.ndarray]) -> onnx.ModelProto:
    """One operator of `x` and constants."""
    names = [f"c{index}" for index in range(len(operands))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    constants = [numpy_helper.from_array(array, name) for array, name in zip(operands, names, strict=True)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, ["x", *names], ["y"], **attrs)], "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node_of(proto: onnx.ModelProto) -> Node:
    """The first node, as the engine sees it."""
    return next(iter(Model.load(proto).graph))
