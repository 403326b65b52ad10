"""Random convolutional graphs give the same numbers in blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphopt.rewrite.target import host
from tests.passes.layout_models import PASS, Builder, assert_close, blocked_ops, convert, graphs, in_branch, run

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


@settings(QUICK, max_examples=40)
@given(graphs())
def test_branches_with_captured_weights_give_the_same_numbers(
    drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]],
) -> None:
    model, feeds = in_branch(drawn[0]), drawn[1] | {"is_taken": np.array(True)}
    result = convert(model)
    assert blocked_ops(result.model), [miss.reason for miss in result.near_misses]
    assert_close(run(model, feeds), run(result.model, feeds))


@settings(QUICK, max_examples=30)
@given(graphs(), st.integers(1, 6))
def test_every_prefix_of_the_events_is_a_model(
    drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]], limit: int
) -> None:
    model, feeds = drawn
    result = convert(model, limit=limit)
    assert len(result.events) <= limit
    assert_close(run(model, feeds), run(result.model, feeds))


def test_time_grows_with_the_graph_only() -> None:
    seconds = {count: _seconds(count) for count in (200, 1600)}
    assert seconds[1600] < 8 * 4 * seconds[200], seconds


def _seconds(count: int) -> float:
    b = Builder(7)
    x = b.image("x", 16, 32, 32)
    weight = b.random(16, 1, 3, 3)
    name = x.name
    for index in range(count):
        if index % 3 == 0:
            (name,) = b.op("Conv", name, weight, group=16, pads=[1, 1, 1, 1])
        else:
            (name,) = b.op("Softsign" if index % 2 else "Softmax", name)
    model = b.model([b.image(name, 16, 32, 32)], 1, dynamic=False)
    return min(convert(model, force=False, check=False).stats[PASS].seconds for _ in range(3))
