"""Everything that can go wrong in one run: nothing is lost, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.audit.corpus import Store
from graphopt.audit.corpus.report import campaign_of
from tests.corpus.faults import ALL, GOOD, Scenario, fill_disk, inject, small_disk


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_counted_twice(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    inject(scenario)
    check(scenario)


@pytest.mark.slow
def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path / "models")
    try:
        with small_disk(tmp_path / "small") as place:
            fill_disk(scenario, place)
            (_, full), (_, again) = scenario.told
            check(scenario)
    except PermissionError as error:
        pytest.skip(f"no disk of its own: {error}")
    assert full.startswith("code 3: ")
    assert "run it again to go on" in full
    kept = int(full.rpartition("; ")[2].split()[0])
    assert 0 < kept < GOOD
    assert f" {kept} of them in the store" in again


def check(scenario: Scenario) -> None:
    """Each model has its record, and one only."""
    with Store(scenario.store) as opened:
        (campaign,) = opened.campaigns()
        found = list(opened.records(campaign))
        assert sum(opened.count(campaign_of(opened)).values()) == len(found)
    by_name = {Path(record.name).name: record for record in found}
    # The copy has the contents of another model: it is one with it.
    assert len(found) == len({record.model for record in found}) == ALL
    assert {record.status for name, record in by_name.items() if name.startswith(("m", "copy"))} == {"done"}
    assert by_name["corrupt.onnx"].status == "failed"
    for name in ("endless.onnx", "greedy.onnx"):
        record = by_name[name]
        assert record.tries or any(row["status"] in ("timeout", "memory") for row in record.audit["rows"]), name
