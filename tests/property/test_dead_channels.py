"""Networks compute the same without their dead channels, and few of these are left."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.fuzzing.networks import channels_network
from graphopt.manager import PassManager
from graphopt.verify import assert_equivalent
from tests.property.settling import unsettled

REMOVED = "graphopt.removed_channels"


def removed(model: onnx.ModelProto) -> int:
    return sum(int(entry.value) for entry in model.metadata_props if entry.key == REMOVED)


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_networks_give_the_same(start: int) -> None:
    alone = PassManager(passes="repeat(eliminate_dead_channels)", strict=True, check=True)
    fired = 0
    for seed in range(start, start + 40):
        model = channels_network(seed)
        result = alone.run(model)
        onnx.checker.check_model(result.model, full_check=True)
        assert_equivalent(model, result.model)
        assert not alone.run(result.model).changed, seed
        fired += removed(result.model) > 0
    assert fired >= 10


def test_every_level_settles() -> None:
    seeds = (*range(200, 220), 565)  # in the last, blocks of x * Sigmoid(x) gain less than a reorder takes
    problems = [f"seed {seed}: {found}" for seed in seeds if (found := unsettled(channels_network(seed)))]
    assert not problems, "\n".join(problems)


def test_channels_that_become_negligible_go() -> None:
    """A scale next to nothing makes a filter zero, and the channel goes with it."""
    rng = np.random.default_rng(0)
    scale = np.where(np.arange(32) % 2, 1, 1e-38)
    arrays = {
        "w": rng.standard_normal((32, 3, 3, 3)), "s": scale, "b": rng.standard_normal(32), "m": rng.standard_normal(32),
        "v": rng.uniform(1, 2, 32), "u": rng.standard_normal((8, 32, 1, 1)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "u"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 4, 4])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = PassManager("basic", strict=True).run(model)
    assert removed(result.model) == 16
    assert sorted(tensor.dims[0] for tensor in result.model.graph.initializer if len(tensor.dims) == 4) == [8, 16]
    assert_equivalent(model, result.model)


def test_initializers_of_training_stay() -> None:
    model = channels_network(1)
    alone = PassManager(passes="eliminate_dead_channels")
    assert removed(alone.run(model).model) > 0
    for tensor in model.graph.initializer:
        model.training_info.add().update_binding.add(key=tensor.name, value=tensor.name)
    assert removed(alone.run(model).model) == 0
