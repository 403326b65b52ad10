"""Random convolutional graphs give the same numbers in blocks."""

from __future__ import annotations

from itertools import count

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from graphopt import Options, PassManager
from graphopt.rewrite import Decline
from graphopt.system.machine import host
from graphopt_passes.layout import nchwc
from graphopt_passes.layout.emitter import Emitter
from graphopt_passes.layout.form import Group
from graphopt_passes.layout.nchwc import emit
from tests.passes.layout_lanes import assert_lanes_do_not_matter, converted, poisoned
from tests.passes.layout_models import (
    PASS,
    Builder,
    assert_close,
    blocked_ops,
    convert,
    in_branch,
    run,
    run_if_finite,
)
from tests.passes.layout_steps import graphs

pytestmark = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")
QUICK = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


Drawn = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def expected_of(drawn: Drawn) -> list[np.ndarray]:
    """Results of the original, all of whose values are finite."""
    expected = run_if_finite(*drawn)
    assume(expected is not None)
    assert expected is not None
    return expected


@QUICK
@given(graphs())
def test_forced_blocks_give_the_same_numbers(drawn: Drawn) -> None:
    expected, (model, feeds) = expected_of(drawn), drawn
    result = convert(model)
    assert blocked_ops(result.model), [miss.reason for miss in result.near_misses]
    assert_close(expected, run(result.model, feeds))
    assert not convert(result.model).changed


@settings(QUICK, max_examples=40)
@given(graphs(), st.integers(0, 99))
def test_padding_lanes_of_random_graphs_do_not_matter(drawn: Drawn, seed: int) -> None:
    expected, (model, feeds) = expected_of(drawn), drawn
    with pytest.MonkeyPatch.context() as patch:
        blocked, built = converted(model, patch)
    assert_lanes_do_not_matter(blocked, built, expected, feeds, seed)


@settings(QUICK, max_examples=20)
@given(graphs(), st.sampled_from([2, 4]), st.integers(0, 99))
def test_convolutions_by_winograd_do_not_read_padding_lanes(drawn: Drawn, tile: int, seed: int) -> None:
    expected, (model, feeds) = expected_of(drawn), drawn
    with pytest.MonkeyPatch.context() as patch:
        blocked, built = converted(model, patch)
    wild = poisoned(blocked, built, host().block, np.random.default_rng(seed))
    for each in (blocked, wild):
        assert_close(expected, run(by_winograd(each, tile), feeds))


def by_winograd(model: onnx.ModelProto, tile: int) -> onnx.ModelProto:
    """The model with all convolutions computed with tiles that can be."""
    name = "convert_conv_to_winograd"
    options = Options(max_weight_growth=1e9, extra={name: {"force": tile}})
    return PassManager(passes=name, strict=True, options=options).run(model).model


@settings(QUICK, max_examples=40)
@given(graphs())
def test_priced_plans_give_the_same_numbers(drawn: Drawn) -> None:
    expected, (model, feeds) = expected_of(drawn), drawn
    result = convert(model, force=False)
    assert_close(expected, run(result.model, feeds))


@settings(QUICK, max_examples=40)
@given(graphs())
def test_branches_with_captured_weights_give_the_same_numbers(drawn: Drawn) -> None:
    expected = expected_of(drawn)
    model, feeds = in_branch(drawn[0]), drawn[1] | {"is_taken": np.array(True)}
    result = convert(model)
    assert blocked_ops(result.model), [miss.reason for miss in result.near_misses]
    assert_close(expected, run(result.model, feeds))


@settings(QUICK, max_examples=30)
@given(graphs(), st.integers(1, 6))
def test_every_prefix_of_the_events_is_a_model(drawn: Drawn, limit: int) -> None:
    expected, (model, feeds) = expected_of(drawn), drawn
    result = convert(model, limit=limit)
    assert len(result.events) <= limit
    assert_close(expected, run(result.model, feeds))


@settings(QUICK, max_examples=30)
@given(graphs())
def test_a_limit_changes_the_steps_but_not_the_model(drawn: Drawn) -> None:
    model, feeds = drawn
    at_once, by_steps = convert(model), convert(model, limit=1000)
    assert len(at_once.events) == len(by_steps.events)
    assert [node.op_type for node in at_once.model.graph.node] == [node.op_type for node in by_steps.model.graph.node]
    for one, other in zip(run(at_once.model, feeds), run(by_steps.model, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


@settings(QUICK, max_examples=60)
@given(graphs(), st.integers(0, 5))
def test_a_group_that_cannot_be_built_after_all_reads_nchw(drawn: Drawn, which: int) -> None:
    expected, (model, feeds) = expected_of(drawn), drawn
    numbers = count()

    def declining(group: Group, emitter: Emitter) -> None:
        if next(numbers) == which:
            raise Decline("it is not built")
        emit(group, emitter)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nchwc, "emit", declining)
        result = convert(model)
    assert_close(expected, run(result.model, feeds))
    assert unread(result.model) <= unread(model)


def unread(model: onnx.ModelProto) -> set[str]:
    """Values of the main graph that nothing reads."""
    read = {name for node in model.graph.node for name in node.input} | {out.name for out in model.graph.output}
    return {name for node in model.graph.node for name in node.output} - read


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
