"""Random control flow gives the same results after optimization, whatever is unrolled, inlined or left."""

from __future__ import annotations

import onnx
import pytest

from graphopt.fuzzing.control import as_function, random_control_model
from graphopt.manager import PassManager
from graphopt.rewrite import Options
from graphopt.verify import compare
from tests.property.settling import unsettled


def problem(seed: int, manager: PassManager, *, in_function: bool = False) -> str | None:
    """What is wrong with the result of one seed, None when nothing is."""
    source = random_control_model(seed)
    if in_function:
        source = as_function(source)
    onnx.checker.check_model(source, full_check=True)
    result = manager.run(source)
    onnx.checker.check_model(result.model, full_check=True)
    report = compare(source, result.model, numerics="rounding")
    if not report.ok and str(report.status) != "inconclusive":
        return f"seed {seed}: {list(result.hits)}\n{report}"
    again = manager.run(result.model)
    if again.events:
        return f"seed {seed}: a second run did {list(map(str, again.events))[:3]}"
    return None


@pytest.mark.parametrize("start", [0, 30])
def test_results_stay_and_runs_are_idempotent(start: int) -> None:
    manager = PassManager("basic", strict=True, check=True)
    problems = [found for seed in range(start, start + 30) if (found := problem(seed, manager))]
    assert not problems, "\n\n".join(problems)


def test_results_stay_when_nothing_is_unrolled() -> None:
    manager = PassManager("basic", strict=True, check=True, options=Options(unroll_limit=0))
    problems = [found for seed in range(60, 80) if (found := problem(seed, manager))]
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("inline", [False, True])
def test_results_stay_in_functions(inline: bool) -> None:
    manager = PassManager("basic", strict=True, check=True, inline_functions=inline)
    problems = [found for seed in range(20) if (found := problem(seed, manager, in_function=True))]
    assert not problems, "\n\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1000, 100))
def test_many_results_stay(start: int) -> None:
    manager = PassManager("basic", strict=True, check=True)
    problems = [found for seed in range(start, start + 100) if (found := problem(seed, manager))]
    assert not problems, "\n\n".join(problems)


def check_settles(start: int, count: int) -> None:
    problems = []
    for seed in range(start, start + count):
        model = random_control_model(seed)
        problems += [f"seed {seed}: {found}" for found in unsettled(model) + unsettled(as_function(model))]
    assert not problems, "\n".join(problems)


def test_every_level_settles() -> None:
    check_settles(0, 12)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 300, 100))
def test_every_level_settles_on_many(start: int) -> None:
    check_settles(start, 100)
