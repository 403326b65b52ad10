"""Random convolutional graphs give the same numbers in blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from graphopt.rewrite.target import host
from tests.passes.layout_models import assert_close, blocked_ops, convert, graphs, run

pytestmark = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")
QUICK = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@QUICK
@given(graphs())
def test_forced_blocks_give_the_same_numbers(drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> None:
    model, feeds = drawn
    result = convert(model)
    assert blocked_ops(result.model), [miss.reason for miss in result.near_misses]
    assert_close(run(model, feeds), run(result.model, feeds))
    assert not convert(result.model).changed


@settings(QUICK, max_examples=40)
@given(graphs())
def test_priced_plans_give_the_same_numbers(drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> None:
    model, feeds = drawn
    result = convert(model, force=False)
    assert_close(run(model, feeds), run(result.model, feeds))
