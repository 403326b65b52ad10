"""Networks written by code, of families that no skeleton is of: the same answers, nothing left to do, no table left."""

import numpy as np
import pytest

from benchmarks.architectures import ARCHITECTURES, build
from benchmarks.skeleton import load_skeleton, names, sample_inputs
from graphopt import PassManager
from tests.models.test_zoo import LEVELS, answers, distance, sensitivity

SAMPLE = ("made/lenet5", "made/coatnet", "made/sknet", "made/relative_waves", "made/contrib_decoder", "made/graph_sage")
REST = [key for key in names("made") if key not in SAMPLE]


def check(key):
    model = load_skeleton(key)
    feed = sample_inputs(key, model)
    wanted = answers(model, feed)
    assert all(np.isfinite(each).all() for each in wanted)
    allowed = max(1e-4, 10 * sensitivity(model, feed, wanted))
    for level in LEVELS:
        manager = PassManager(level)
        result = manager.run(model)
        assert not result.failures, [f"{level}: {failure}" for failure in result.failures]
        worst = distance(answers(result.model, feed), wanted)
        assert worst < allowed, f"{level}: relative error {worst:.2g}, allowed {allowed:.2g}"
        again = manager.run(result.model)
        assert not again.changed, f"{level}: a second run still fires {again.hits}"


@pytest.mark.parametrize("key", SAMPLE)
def test_sample_keeps_its_answers(key):
    check(key)


@pytest.mark.slow
@pytest.mark.parametrize("key", REST)
def test_every_architecture_keeps_its_answers(key):
    check(key)


def test_there_are_many_and_each_is_another_one():
    assert len(ARCHITECTURES) >= 70
    assert len({tuple(node.op_type for node in build(name)[0].graph.node) for name in ARCHITECTURES}) == len(
        ARCHITECTURES
    )


def test_a_network_is_the_same_each_time():
    first, second = (load_skeleton("made/sknet").SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", ["coatnet", "swin_v2", "relative_waves", "disentangled", "perceiver"])
def test_no_table_is_computed_at_each_run(name):
    """At `all`, with the runtime's optimizer off, nothing is left that depends on constants alone."""
    model = PassManager("all").run(build(name)[0]).model
    constant = {tensor.name for tensor in model.graph.initializer}
    lone = [node.op_type for node in model.graph.node if node.input and constant.issuperset(filter(None, node.input))]
    assert not lone
