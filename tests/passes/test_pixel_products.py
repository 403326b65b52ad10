"""Products of tokens beside convolutions of their image: where they become convolutions, and that all stays in blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.architectures.net import Net
from graphopt import PassManager
from graphopt.demo.skeletons import refill
from graphopt.system.machine import host
from tests.models.test_zoo import answers, distance

NAME = "convert_pixel_product_to_conv"


def network(side: int, width: int, wide: int) -> onnx.ModelProto:
    """Two blocks of a hybrid transformer: tokens are widened, convolved as an image, and narrowed."""
    n = Net()
    x = n.input(1, side * side, width)
    for _ in range(2):
        image = n.image(n.linear(n.layer_norm(x), wide), side, side)
        x = n("Add", x, n.linear(n.activate(n.rows(n.depthwise(image, act="")), "Gelu"), width))
    return refill(n.model(x))


@pytest.mark.parametrize(
    ("side", "width", "wide", "target", "hits"),
    [
        (56, 32, 256, "avx512-zen4", 4), (56, 32, 256, "avx512-zen5", 4), (56, 32, 256, "avx2", 4),
        (28, 64, 256, "avx512-zen4", 4), (14, 160, 640, "avx512-zen4", 4), (14, 160, 640, "avx2", 0),
        (56, 64, 64, "avx512-zen4", 0), (56, 24, 256, "avx512-zen4", 0), (56, 256, 32, "avx512-zen4", 0),
    ],
)  # fmt: skip
def test_it_is_done_where_the_tokens_are_narrow(side: int, width: int, wide: int, target: str, hits: int) -> None:
    """Not where the gain is less than the model of this target errs by."""
    result = PassManager(passes=f"convert_tokens_to_image,{NAME}", target=target).run(network(side, width, wide))
    assert result.hits.get(NAME, 0) == hits


@pytest.mark.skipif(host().block != 16, reason="the kernels of this target are those of another machine")
def test_a_block_stays_in_blocks_from_end_to_end() -> None:
    model = network(28, 64, 256)
    manager = PassManager("all", target="avx512-zen4", strict=True)
    made = manager.run(model).model
    blocked = [node.op_type for node in made.graph.node if node.domain.endswith("nchwc")]
    assert blocked == ["ReorderInput", "Conv", "Conv", "Conv", "ReorderOutput"] * 2
    assert not any(node.op_type in ("Transpose", "MatMul", "Gemm") for node in made.graph.node)
    feed = {"input_0": np.random.default_rng(0).standard_normal((1, 784, 64), np.float32)}
    assert distance(answers(made, feed), answers(model, feed)) < 1e-4
    again = manager.run(made)
    assert not again.changed, again.hits
