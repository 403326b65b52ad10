"""Positions: whatever is claimed of a tensor is what it holds, for all sizes."""

import random
from math import prod

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from graphopt.analysis.shapes import Expr, ShapeAnalysis
from graphopt.analysis.shapes.positions import PositionAnalysis
from graphopt.analysis.types import infer_types
from graphopt.ir import Model

SIZES = ((1, 1), (1, 3), (2, 1), (3, 4), (0, 2))


def program(seed):
    """A random program over two ranges, whose lengths are the sizes of the input."""
    pick = random.Random(seed)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["b"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Range", ["zero", "b", "one"], ["rows"]),
        helper.make_node("Range", ["two", "end", "two"], ["fixed"]),
        helper.make_node("Range", ["zero", "n", "one"], ["columns"]),
        helper.make_node("Unsqueeze", ["rows", "last"], ["r"]),
        helper.make_node("Unsqueeze", ["columns", "first"], ["c"]),
    ]
    known = ["rows", "columns", "fixed", "r", "c", "b", "n", "two", "table"]
    for index in range(8):
        name = f"v{index}"
        op = pick.choice(["Add", "Sub", "Mul", "Unsqueeze", "Squeeze", "Transpose", "Cast", "Expand", "Slice"])
        operands = [pick.choice(known)]
        if op in ("Add", "Sub", "Mul"):
            operands.append(pick.choice(known))
        elif op == "Unsqueeze":
            operands.append(pick.choice(["first", "last"]))
        elif op == "Expand":
            operands.append("s")
        elif op == "Slice":
            operands += [pick.choice(["first", "ones"]), "far", pick.choice(["first", "last"])]
            operands.append(pick.choice(["ones", "twos"]))
        attributes = {"to": TensorProto.INT64} if op == "Cast" else {}
        nodes.append(helper.make_node(op, operands, [name], **attributes))
        known.append(name)
    return nodes


CONSTANTS = {
    "zero": 0, "one": 1, "two": 2, "end": 9, "first": [0], "last": [-1], "ones": [1], "twos": [2], "far": [2**40],
    "table": [[0, 3, 6], [1, 4, 7]],
}  # fmt: skip


def build(nodes):
    tensors = [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in CONSTANTS.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", "N"])
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "g", [x], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def runnable(nodes):
    """The nodes but those that fail for some size, and those that read them."""
    kept = []
    dead = set()
    for node in nodes:
        if dead.isdisjoint(node.input):
            try:
                for sizes in SIZES:
                    run(build([*kept, node]), sizes)
            except Exception:
                dead.update(node.output)
                continue
            kept.append(node)
        else:
            dead.update(node.output)
    return kept


def run(model, sizes):
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": np.zeros(sizes, np.float32)}), strict=True))


def number(size, env):
    """A size for given symbols; None when it has symbols of other kinds."""
    if not isinstance(size, Expr):
        return int(size)
    if any(atom.name not in env for product, _ in size.terms for atom in product):
        return None
    return size.const + sum(factor * prod(env[atom.name] for atom in product) for product, factor in size.terms)


@pytest.mark.parametrize("seed", range(12))
def test_claims_hold_for_all_sizes(seed):
    model = build(runnable(program(seed)))
    view = Model.load(model)
    infer_types(view)
    positions = PositionAnalysis(ShapeAnalysis(view, zero_sizes=True))
    claims = {value.name: positions.of(value) for node in view.graph for value in node.outputs}
    assert sum(claim is not None for claim in claims.values()) >= 5
    for sizes in SIZES:
        env = dict(zip(("B", "N"), sizes, strict=True))
        for name, got in run(model, sizes).items():
            claim = claims[name]
            if claim is None or not got.size:
                continue
            start, steps = number(claim.start, env), [number(step, env) for step in claim.steps]
            if start is None or None in steps:
                continue
            wanted = np.full(got.shape, start)
            for axis, step in enumerate(steps):
                along = [-1 if at == axis else 1 for at in range(got.ndim)]
                wanted = wanted + step * np.arange(got.shape[axis]).reshape(along)
            np.testing.assert_array_equal(got, wanted, err_msg=f"{name} at {sizes}: {claim}")
