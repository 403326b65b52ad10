"""Operators on permuted operands: what is written in their place gives the same numbers, at every opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

from graphopt.errors import Decline
from graphopt.ir import Model, Node
from graphopt.ir.forms import MOVED, placed
from graphopt.operators.transpose import inverse, is_identity
from graphopt.rewrite import Driver, Log, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.transposes.table import OPERATORS, moving_inputs, permuted
from tests.passes.layout_models import run

OPSETS = (8, 10, 11, 13, 18)
SHAPE = (2, 3, 1, 4)
PERMS = ((0, 2, 3, 1), (1, 0, 2, 3), (3, 2, 1, 0))
"""By what the operand is permuted from what it comes from."""

CASES: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("Clip", [], {"min": -0.5, "max": 0.5}, 1),
    ("Add", [np.arange(4, dtype=np.float32)], {}, 1),
    ("Sub", [np.arange(12, dtype=np.float32).reshape(3, 1, 4)], {}, 1),
    ("Concat", [np.ones(SHAPE, np.float32)], {"axis": -2}, 1),
    ("MatMul", [np.arange(8, dtype=np.float32).reshape(4, 2)], {}, 1),
    ("ReduceSum", [], {"axes": [1, -1], "keepdims": 0}, 1),
    ("ReduceMean", [], {"axes": [1], "keepdims": 1}, 1),
    ("ReduceL2", [], {"axes": [-3, 0], "keepdims": 0}, 1),
    ("ReduceSum", [], {}, 1),
    ("ReduceMean", [], {"keepdims": 0}, 1),
    ("ArgMax", [], {"axis": 1, "keepdims": 0}, 1),
    ("Softmax", [], {"axis": 1}, 1),
    ("Split", [], {"axis": -1, "split": [1, 3]}, 2),
    ("TopK", [], {"axis": 1, "k": 2}, 2),
    ("CumSum", [np.array(-3, np.int64)], {}, 1),
    ("Gather", [np.array([2, 0])], {"axis": 1}, 1),
    ("Gather", [np.array(1)], {"axis": -3}, 1),
    ("Tile", [np.array([1, 2, 3, 1])], {}, 1),
    ("Expand", [np.array([3, 5, 1])], {}, 1),
    ("Pad", [], {"pads": [0, 1, 2, 0, 1, 0, 0, 3], "constant_value": 1.5}, 1),
    ("Slice", [], {"starts": [1, -3], "ends": [3, 9], "axes": [-1, 1]}, 1),
    ("Slice", [], {"starts": [0, 1], "ends": [1, 3]}, 1),
    ("Squeeze", [], {"axes": [2]}, 1),
    ("Unsqueeze", [], {"axes": [0, 3]}, 1),
    ("Unsqueeze", [], {"axes": [4]}, 1),
]


class Past(OpRule):
    """Let an operator work on what a `Transpose` reads."""

    name = "past_transpose"

    def __init__(self, op: str) -> None:
        self.ops = (op,)  # type: ignore[misc]

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.proto is None:
            return None
        transpose = node.operand(0).source("Transpose", reader=node)
        assert moving_inputs(node, len(SHAPE))[0] is node.operand(0)
        found = permuted(node, {node.operand(0): transpose.operand(0)}, transpose.attr("perm"))
        made = found.write(node, rw)
        return rw.replace(
            node, made if is_identity(found.perm) else [rw.op("Transpose", value, perm=found.perm) for value in made]
        )


def model(op: str, opset: int, operands: list[Any], settings: dict[str, Any], outputs: int) -> onnx.ModelProto:
    """The operator on a transposed value, with settings wherever the opset has them."""
    perm = settings.pop("perm")
    given: tuple[list[Any], dict[str, Any]] = ["t", *operands], settings
    if op in MOVED:
        given = placed(op, opset, given[0], settings, np.dtype(np.float32))
    names = ["t"]
    constants = []
    for index, operand in enumerate(given[0][1:], 1):
        names.append("" if operand is None else f"c{index}")
        if operand is not None:
            constants.append(numpy_helper.from_array(operand, f"c{index}"))
    attrs = {key: value for key, value in given[1].items() if value is not None}
    results = [f"y{number}" for number in range(outputs)]
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=perm), helper.make_node(op, names, results, **attrs)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [SHAPE[axis] for axis in inverse(perm)])
    ys = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph(nodes, "g", [x], ys, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def _exists(op: str, opset: int) -> bool:
    return bool(defs.has(op, opset))


@pytest.mark.parametrize("opset", OPSETS)
def test_operators_on_permuted_operands(opset: int) -> None:
    tried, declined = 0, set()
    for op, operands, settings, outputs in CASES:
        for perm in PERMS if _exists(op, opset) else ():
            proto = model(op, opset, operands, {**settings, "perm": perm}, outputs)
            loaded = Model.load(proto)
            driver = Driver(loaded, Log(listen=True), check=True, strict=True)
            driver.infer()
            if not driver.run_rules([Past(op)]):
                declined.add((op, *(str(miss.reason) for miss in driver.log.near_misses.values())))
                continue
            x = np.random.default_rng(0).standard_normal([SHAPE[axis] for axis in inverse(perm)]).astype(np.float32)
            for before, after in zip(run(proto, {"x": x}), run(loaded.flush(), {"x": x}), strict=True):
                np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6, err_msg=f"{op} {settings} {perm}")
            tried += 1
    assert tried >= 2 * len({op for op, *_ in CASES if _exists(op, opset)})
    reasons = {reason for _, *given in declined for reason in given}
    assert all("would" in reason or "axes, expected 1" in reason for reason in reasons), declined


def test_every_kind_of_operator_is_tried() -> None:
    assert {op for op, *_ in CASES} <= OPERATORS
    unknown = Model.load(model("Pad", 18, [], {"pads": [1] * 8, "perm": PERMS[0]}, 1))
    node = unknown.graph.outputs[0].producer
    assert node is not None
    with pytest.raises(Decline, match="the transposed value is not its first operand only"):
        permuted(node, {}, PERMS[0])
