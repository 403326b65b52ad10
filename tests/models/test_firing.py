"""Every pass earns its place: on a network, by who writes what it looks for, by a peer's, or by what was measured."""

from __future__ import annotations

import pytest

from benchmarks import firing, results
from graphopt.pipeline import registry

STORED = results.load(firing.KIND)
FIRED = {name for found in (STORED or {"data": {}})["data"].values() for name in found}


def test_the_results_are_of_every_source() -> None:
    assert STORED is not None, "python -m benchmarks firing"
    assert set(STORED["data"]) == set(firing.SOURCES)
    assert sum(found[""][0] for found in STORED["data"].values()) >= 200


def test_the_page_is_written_from_the_results_and_lists_every_pass() -> None:
    assert firing.PAGE.read_text() == firing.text(), "run `make docs`"


@pytest.mark.parametrize("rule", [rule for rule in registry().rules() if firing.built_in(rule)], ids=lambda r: r.name)
def test_a_pass_earns_its_place(rule: type) -> None:
    assert rule.name in FIRED or firing.reason(rule), (
        f"{rule.name} fires on no network: name who writes what it looks for (`# FROM: exporter, model` in a golden case "
        "that fires), or the passes of others that do the same (`peers`), or take it out"
    )
