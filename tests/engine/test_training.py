"""Initializers that training information reads or updates: they stay, and nothing is computed from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import PassManager
from graphopt.ir import Model
from graphopt.testing import Case, cases

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [
    path
    for folder in sorted(GOLDEN.iterdir())
    for path in [next((p for p in sorted(cases(folder)) if p.stem.startswith("fires")), None)]
    if path is not None and Case.read(path).model().graph.initializer
]


def trained(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with all its initializers updated by a step of training."""
    training = model.training_info.add()
    training.algorithm.name = "step"
    for tensor in model.graph.initializer:
        training.algorithm.node.append(helper.make_node("Identity", [tensor.name], [f"{tensor.name} stepped"]))
        training.update_binding.add(key=tensor.name, value=f"{tensor.name} stepped")
    return model


@pytest.mark.parametrize("path", CASES, ids=[path.parent.name for path in CASES])
def test_trained_initializers_stay_and_are_no_constants(path: Path) -> None:
    model = trained(Case.read(path).model())
    before = {tensor.name: tensor.SerializeToString() for tensor in model.graph.initializer}
    name = path.parent.name
    result = PassManager(passes=f"{name},eliminate_unused_initializer", strict=True, check=True).run(model).model
    after = {tensor.name: tensor.SerializeToString() for tensor in result.graph.initializer}
    assert before.items() <= after.items()
    assert result.training_info == model.training_info


def test_a_step_of_training_shows_in_the_optimized_model() -> None:
    """A convolution with its normalization, optimized and then trained, gives what the original then gives."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {1, 2}, float[2] o = {0, 1}, float[2] m = {3, 4}, float[2] v = {5, 6}>
    { a = Conv (x, w)  b = BatchNormalization (a, s, o, m, v)  y = Relu (b) }"""
    model = onnx.parser.parse_model(text)
    untrained = PassManager(level="extended").run(model).model
    assert len(untrained.graph.node) < len(model.graph.node)
    model = trained(model)
    optimized = PassManager(level="all").run(model).model
    rng = np.random.default_rng(0)
    stepped = {t.name: rng.uniform(0.5, 2, tuple(t.dims)).astype(np.float32) for t in model.graph.initializer}
    x = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    results = []
    for each in (model, optimized):
        for tensor in each.graph.initializer:
            if tensor.name in stepped:
                tensor.CopyFrom(numpy_helper.from_array(stepped[tensor.name], tensor.name))
        del each.training_info[:]
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(each.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"x": x})[0])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_every_way_in_which_training_information_names_an_initializer() -> None:
    names = ("by_initialization", "by_update", "assigned", "read", "in_body", "free")
    graph = helper.make_graph(
        [helper.make_node("Sum", ["x", *names], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), name) for name in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    training = model.training_info.add()
    training.initialization_binding.add(key="by_initialization", value="start")
    training.update_binding.add(key="by_update", value="assigned")
    body = helper.make_graph([helper.make_node("Neg", ["in_body"], ["inner"])], "body", [], [])
    training.algorithm.node.append(helper.make_node("Neg", ["read"], ["step"]))
    training.algorithm.node.append(helper.make_node("If", ["step"], ["z"], then_branch=body, else_branch=body))
    view = Model.load(model)
    assert {v.name for v in view.graph.initializers if v.is_const} == {"free"}
    assert {v.name for v in view.graph.initializers if not v.is_anchored} == {"free"}
    assert view.fresh_name("step") != "step"
