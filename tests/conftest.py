"""Options and settings of the whole test suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from graphopt.pipeline import run

settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# Results must not depend on what somebody measured on the machine that runs the tests.
os.environ["GRAPHOPT_TUNED"] = "off"


@pytest.fixture(autouse=True)
def _no_plan_of_what_is_patched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs with the same settings share a plan, which holds what it calls: no other test is to call what one patched."""
    yield
    if "monkeypatch" in request.fixturenames:
        run.forget_plans()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what the passes do now into the golden files")
