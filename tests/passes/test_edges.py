"""Blocked convolutions whose windows reach beyond the edges: where a `Pad` is written, and whole networks with it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from graphopt import PassManager
from graphopt.system.machine import host
from graphopt.verify import compare

NAME = "convert_conv_pads_to_pad"


def network(channels: int, width: int, kernel: int, group: int = 1) -> ModelProto:
    """A convolution of an image."""
    weights = np.random.default_rng(0).normal(size=(channels, channels // group, kernel, kernel)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4, group=group)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, width, width]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("layer", "target", "hits"),
    [
        ((64, 14, 5), "avx512-zen5", 1), ((64, 56, 7), "avx512-zen5", 1), ((64, 14, 3), "avx512-zen5", 0),
        ((64, 14, 7, 64), "avx512-zen5", 0), ((128, 14, 7, 4), "avx512-zen5", 1), ((32, 400, 5), "avx512-zen5", 0),
        ((64, 14, 5), "avx512-zen4", 1), ((64, 14, 5), "avx2", 0),
    ],
)  # fmt: skip
def test_it_is_done_where_it_gains(layer: tuple[int, ...], target: str, hits: int) -> None:
    assert PassManager("all", target=target).run(network(*layer)).hits.get(NAME, 0) == hits


@pytest.mark.skipif(host().name != "avx512", reason="elsewhere the pass does nothing, and blocks of 16 do not run")
@pytest.mark.parametrize("group", [1, 4])
def test_numbers_stay(group: int) -> None:
    model = network(64, 13, 7, group)
    result = PassManager("all").run(model)
    assert result.hits[NAME] == 1
    assert compare(model, result.model, sets=("ordinary", "extreme")).ok
