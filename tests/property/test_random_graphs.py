"""Random graphs: the view holds after every rewrite, results stay, and levels settle and compose."""

from __future__ import annotations

import pytest

from graphopt.fuzzing.models import sample
from graphopt.fuzzing.subjects import OwnSubject
from graphopt.fuzzing.verdicts import Judge, NotUsableError
from graphopt.manager import PassManager
from tests.property.settling import unsettled


def problem(seed: int, subject: OwnSubject) -> str | None:
    """What is wrong with the result of one seed, None when nothing is."""
    drawn = sample(f"graphs/{seed}")
    if drawn is None:
        return None
    try:
        judge = Judge(drawn)
    except NotUsableError:
        return None
    verdict = judge.of(subject, subject.optimize(drawn.model))
    return None if verdict is None else f"seed {seed}: {verdict}"


@pytest.mark.parametrize("start", range(0, 200, 100))
def test_results_stay_and_runs_are_idempotent(start: int) -> None:
    subject = OwnSubject("basic")
    subject.manager = PassManager("basic", check=True)
    problems = [found for seed in range(start, start + 100) if (found := problem(seed, subject))]
    assert not problems, "\n\n".join(problems)


def check_settles(start: int, count: int) -> None:
    drawn = ((seed, sample(f"settle/{seed}")) for seed in range(start, start + count))
    found = ((seed, unsettled(each.model)) for seed, each in drawn if each is not None)
    problems = [f"seed {seed}: {problem}" for seed, problem in found if problem]
    assert not problems, "\n".join(problems)


def test_every_level_settles() -> None:
    check_settles(0, 30)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 600, 250))
def test_every_level_settles_on_many(start: int) -> None:
    check_settles(start, 250)
