"""Convolutions with few outputs that compute squares of positions: where, and in what form."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from graphopt import PassManager
from graphopt.verify import compare

NAME = "convert_few_outputs_to_neighbours"


def network(inputs: int, outputs: int, size: int, kernel: int, act: str = "") -> ModelProto:
    """A convolution that makes an image of the same size."""
    numbers = np.random.default_rng(0)
    weights = {
        "w": numbers.normal(size=(outputs, inputs, kernel, kernel)).astype(np.float32),
        "b": numbers.normal(size=outputs).astype(np.float32),
    }
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4)]
    nodes.append(helper.make_node(act or "Identity", ["c"], ["y"]))
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, size, size])
        for name, channels in (("x", inputs), ("y", outputs))
    )
    kept = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("layer", "target", "side"),
    [
        ((32, 3, 112, 9), "avx512-zen5", 4), ((64, 1, 96, 3), "avx512-zen5", 4), ((64, 3, 128, 3), "avx512-zen5", 2),
        ((64, 8, 56, 3), "avx512-zen5", 2), ((16, 1, 15, 5), "avx512-zen5", 3), ((64, 9, 56, 3), "avx512-zen5", 0),
        ((128, 2, 7, 3), "avx512-zen5", 0), ((64, 1, 14, 1), "avx512-zen5", 0), ((2048, 8, 56, 3), "avx512-zen5", 0),
        ((32, 3, 112, 9), "avx2", 4), ((64, 5, 56, 3), "avx2", 0),
    ],
)  # fmt: skip
def test_it_is_done_where_it_gains(layer: tuple[int, int, int, int], target: str, side: int) -> None:
    result = PassManager(passes=NAME, target=target).run(network(*layer))
    moves = [node for node in result.model.graph.node if node.op_type == "DepthToSpace"]
    assert [move.attribute[0].i for move in moves] == [side] * bool(side)


@pytest.mark.parametrize("act", ["", "Relu", "Tanh"])
def test_numbers_stay_in_whole_networks(act: str) -> None:
    model = network(24, 3, 36, 5, act)
    result = PassManager("all").run(model)
    assert result.hits[NAME] == 1
    assert compare(model, result.model, sets=("ordinary", "extreme")).ok
