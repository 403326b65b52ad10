"""Feed-forward blocks as blocked convolutions: where they gain, in what form they come out, and the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.architectures.net import Net
from graphopt import PassManager
from graphopt.demo.skeletons import refill
from graphopt.system.machine import host
from tests.models.test_zoo import answers, distance

NAME = "convert_feed_forward_to_conv"


def network(width: int, rows: int, act: str = "Gelu", wide: int = 4) -> onnx.ModelProto:
    """Two blocks behind norms, with residuals."""
    n = Net()
    x = n.input(1, rows, width)
    for _ in range(2):
        x = n.feed_forward(x, act, wide)
    return refill(n.model(x))


@pytest.mark.parametrize(
    ("width", "rows", "target", "hits"),
    [
        (256, 64, "avx512-zen5", 2), (256, 64, "avx512", 0), (384, 64, "avx512", 2), (384, 200, "avx512", 0),
        (384, 1000, "avx512-zen5", 2), (384, 1100, "avx512-zen5", 2), (192, 64, "avx512-zen5", 0), (384, 64, "avx2", 0),
        (96, 3136, "avx512-zen5", 2), (96, 1600, "avx512-zen5", 0), (96, 3136, "avx512-zen4", 0),
    ],
)  # fmt: skip
def test_it_is_done_where_it_gains(width: int, rows: int, target: str, hits: int) -> None:
    result = PassManager(passes=NAME, target=target).run(network(width, rows))
    assert result.hits.get(NAME, 0) == hits


@pytest.mark.skipif(host().block != 16, reason="the kernels of this target are those of another machine")
@pytest.mark.parametrize("act", ["Gelu", "Relu", "Silu"])
def test_a_block_stays_in_blocks_from_end_to_end(act: str) -> None:
    model = network(384, 32, act)
    manager = PassManager("all", target="avx512-zen5", strict=True)
    made = manager.run(model).model
    blocked = [node.op_type for node in made.graph.node if node.domain.endswith("nchwc")]
    assert blocked == ["ReorderInput", "Conv", "Conv", "ReorderOutput"] * 2
    assert not any(node.op_type == "Transpose" for node in made.graph.node)
    feed = {"input_0": np.random.default_rng(0).standard_normal((1, 32, 384), np.float32)}
    assert distance(answers(made, feed), answers(model, feed)) < 1e-4
    again = manager.run(made)
    assert not again.changed, again.hits
