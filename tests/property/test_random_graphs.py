"""Random graphs give the same results after optimization, and a second run has nothing to do."""

from __future__ import annotations

import onnx
import pytest

from graphopt.manager import PassManager
from graphopt.verify import compare
from tests.property.random_graphs import input_sizes, random_model
from tests.property.settling import unsettled


def problem(seed: int, manager: PassManager) -> str | None:
    """What is wrong with the result of one seed, None when nothing is."""
    source = random_model(seed)
    result = manager.run(source)
    onnx.checker.check_model(result.model)
    report = compare(source, result.model, numerics="rounding", dims=input_sizes(seed))
    if not report.ok and str(report.status) != "inconclusive":
        return f"seed {seed}: {list(result.hits)}\n{report}"
    again = manager.run(result.model)
    if again.events:
        return f"seed {seed}: a second run did {list(map(str, again.events))}"
    return None


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_results_stay_and_runs_are_idempotent(start: int) -> None:
    manager = PassManager("basic", strict=True, check=True)
    problems = [found for seed in range(start, start + 100) if (found := problem(seed, manager))]
    assert not problems, "\n\n".join(problems)


def check_settles(start: int, count: int) -> None:
    problems = [
        f"seed {seed}: {found}" for seed in range(start, start + count) if (found := unsettled(random_model(seed)))
    ]
    assert not problems, "\n".join(problems)


def test_every_level_settles() -> None:
    check_settles(0, 60)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1100, 250))
def test_every_level_settles_on_many(start: int) -> None:
    check_settles(start, 250)
