"""Optimizing what was optimized changes nothing: the same bytes come out at every level. And levels compose.

`python -m tests.models.settle` prints what is not equal, for every network, level and numerics.
"""

import pytest

from benchmarks.skeleton import load_skeleton, names
from graphopt.manager import PassManager
from tests.backend_models import backend_models
from tests.models.settle import RENAMED, SAME, outcomes
from tests.same import assert_same_bytes

LEVELS = ("basic", "extended", "all")
SAMPLE = [
    "dynamo/bert",
    "ts/crnn",
    "dynamo_raw/llama",
    "ts/mobilevit_xs_dyn",
    "dynamo/xcit_nano_12_p16_224",
    "ts/levit_128s",
]
REST = [key for key in names() if key not in SAMPLE]


def check(name, model, level):
    manager = PassManager(level)
    once = manager.run(model).model.SerializeToString()
    again = manager.run(once)
    assert_same_bytes(again.model.SerializeToString(), once, f"{name} at {level}: {again.hits}")


@pytest.mark.parametrize("key", SAMPLE)
def test_sample_is_settled_and_levels_compose(key):
    """A second run gives the same bytes, and what `basic` gives, optimized at a higher level, is the graph of that."""
    found = {outcome.what: outcome for outcome in outcomes(load_skeleton(key), numerics=("rounding",))}
    twice = [found[f"{level} twice"] for level in LEVELS]
    composed = [found[f"basic then {level}"] for level in LEVELS[1:]]
    assert all(outcome.verdict == SAME for outcome in twice), list(map(str, twice))
    assert all(outcome.verdict in (SAME, RENAMED) for outcome in composed), list(map(str, composed))


@pytest.mark.slow
@pytest.mark.parametrize("key", names())
def test_every_network_composes_at_all_numerics(key):
    found = list(outcomes(load_skeleton(key)))
    composed = [outcome for outcome in found if outcome.what.startswith("basic then")]
    assert len(composed) == 6
    assert all(outcome.verdict in (SAME, RENAMED) for outcome in composed), list(map(str, composed))


@pytest.mark.slow
@pytest.mark.parametrize("key", REST)
def test_every_network_is_settled_after_one_run(key):
    model = load_skeleton(key)
    for level in LEVELS:
        check(key, model, level)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_backend_models_are_settled_after_one_run(level):
    for name, model in backend_models().items():
        check(name, model, level)
