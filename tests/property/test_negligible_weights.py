"""Weights that are set to zero change no output by more than the bound that is stated, and nothing that matters."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.manager import PassManager
from graphopt.results import Result
from graphopt.verify import assert_equivalent, sample_inputs
from tests.property.random_weights import linear_model, network


def outputs(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def denormals(model: onnx.ModelProto) -> int:
    arrays = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    return sum(int(((a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny)).sum()) for a in arrays if a.ndim > 1)


def zeroed(result: Result) -> int:
    return sum(event.zeroed for event in result.events)


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_no_output_changes_by_more_than_the_bound(start: int) -> None:
    """One linear operator: the bound that its event states holds, times the largest input, beside rounding."""
    fired = 0
    for seed in range(start, start + 50):
        model = linear_model(seed)
        result = PassManager(passes="eliminate_negligible_weights", strict=True, check=True).run(model)
        feed = {"x": sample_inputs(model, set_name="ordinary", seed=seed)["x"]}
        before, after = outputs(model, feed)[0], outputs(result.model, feed)[0]
        bound = sum(event.bound for event in result.events) * float(np.abs(feed["x"]).max())
        axis = 1 if before.ndim == 4 else before.ndim - 1
        rounding = (
            16 * np.finfo(before.dtype).eps * np.moveaxis(np.abs(before), axis, 0).reshape(before.shape[axis], -1)
        )
        change = np.moveaxis(np.abs(before - after), axis, 0).reshape(before.shape[axis], -1)
        assert (change.max(1) <= bound + rounding.max(1)).all(), seed
        fired += zeroed(result) > 0
    assert fired >= 20


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_networks_give_the_same(start: int) -> None:
    """Networks with scales of all magnitudes: some multiply back what is small, and keep it then."""
    fired = kept = 0
    for seed in range(start, start + 20):
        model = network(seed)
        result = PassManager("basic", strict=True, check=True).run(model)
        # Rounding moves these networks over the edges of Floor, and infinities beside folded zeros: not our question.
        without = PassManager("basic", skip=["eliminate_negligible_weights"], strict=True).run(model)
        assert_equivalent(without.model, result.model)
        assert not PassManager("basic", strict=True).run(result.model).changed, seed
        fired += zeroed(result) > 0
        kept += denormals(result.model) > 0
    assert fired >= 5
    assert kept < 20


@pytest.mark.parametrize("start", range(0, 200, 100))
def test_scales_that_are_undone_later_lose_no_digits_in_weights(start: int) -> None:
    """What is small for a while may be large again at the end: such scales stay where they are."""
    fired = kept = 0
    for seed in range(start, start + 100):
        model = network(seed)
        if any(node.op_type == "Floor" for node in model.graph.node):
            continue  # rounding moves numbers over its edges
        result = PassManager(passes="fuse_bn_into_conv,fuse_mul_into_conv", strict=True).run(model)
        feed = {"x": np.random.default_rng(seed).standard_normal((1, 8, 6, 6)).astype(np.float32)}
        before, after = outputs(model, feed)[0], outputs(result.model, feed)[0]
        if not np.isfinite(before).all():
            continue  # what is undone twice overflows
        allowed = 1e-4 * np.abs(before).max(axis=(2, 3), keepdims=True)
        assert (np.abs(after - before) <= np.maximum(allowed, 1e-30)).all(), seed
        fired += result.changed
        kept += any(node.op_type == "BatchNormalization" for node in result.model.graph.node)
    assert fired >= 30
    assert kept >= 10


def test_initializers_of_training_stay() -> None:
    weight = np.array([[1e-40, 0.5], [0.75, 1.0]], np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert zeroed(PassManager().run(model)) == 1
    model.training_info.add().update_binding.add(key="w", value="w")
    assert zeroed(PassManager().run(model)) == 0


def test_the_model_says_how_many() -> None:
    result = PassManager("basic").run(linear_model(3))
    count = zeroed(result)
    assert count > 0
    assert result.zeroed == count
    assert {p.key: p.value for p in result.model.metadata_props}["graphopt.zeroed_weights"] == str(count)
