"""The engine is linear: attempts a node do not grow with the graph, and neither does the time of one."""

import time

import pytest

from benchmarks.profiling import profile_one
from benchmarks.synthetic import MIXES, build

SMALL, LARGE = 1_000, 8_000


def attempts(report):
    return sum(rule["attempts"] for rule in report["rules"].values())


@pytest.mark.parametrize("mix", MIXES)
def test_attempts_per_node_do_not_grow(mix):
    few, many = (profile_one(build(mix, nodes), "all", timed=False) for nodes in (SMALL, LARGE))
    assert few["failures"] == many["failures"] == 0
    assert attempts(many) / many["nodes"] < 1.2 * attempts(few) / few["nodes"] + 1
    assert many["left"] / many["nodes"] <= few["left"] / few["nodes"] + 0.02, "something gives up on large graphs"


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_time_is_linear(mix):
    few, many = (min(seconds(mix, nodes) for _ in range(3)) for nodes in (2_000, 20_000))
    assert many / few < 10 * 2.5


def seconds(mix, nodes):
    model = build(mix, nodes)
    start = time.perf_counter()
    profile_one(model, "all", timed=False)
    return time.perf_counter() - start
