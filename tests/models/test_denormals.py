"""A network whose folding makes denormal weights has none after `basic`, within the bound that is stated."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.denormals import WEIGHTS, bound, denormals, generated, parameters, removed
from graphopt.manager import PassManager
from graphopt.verify import assert_equivalent


@pytest.mark.parametrize("seed", range(3))
def test_folding_makes_no_denormal_weights(seed: int) -> None:
    model = generated(seed, depth=4, channels=40, size=12)
    assert denormals(model) == 0
    folded = PassManager("basic", skip=[WEIGHTS]).run(model)
    assert denormals(folded.model) > 500
    result = PassManager("basic", strict=True).run(model)
    assert denormals(result.model) == 0
    assert result.zeroed >= denormals(folded.model)
    assert 0 < bound(result) < 1e-28
    assert removed(result.model) >= 8
    assert parameters(result.model) < parameters(folded.model)
    assert_equivalent(model, result.model)


def test_the_bound_is_that_of_the_weights() -> None:
    """The stated bound is the largest sum of what was set to zero in one row of the folded weights."""
    model = generated(7, depth=1, channels=16, size=8)
    folded = PassManager("basic", skip=[WEIGHTS]).run(model).model
    result = PassManager("basic", skip=["eliminate_dead_channels"]).run(model)
    before, after = (
        {name: array for name, array in arrays(made).items() if array.ndim == 4} for made in (folded, result.model)
    )
    lost = [np.abs(x.astype(np.float64) - y).reshape(len(x), -1).sum(1).max()
            for x, y in zip(before.values(), after.values(), strict=True)]  # fmt: skip
    assert bound(result) == pytest.approx(max(lost), rel=1e-6)


def arrays(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
