"""Everything that can go wrong in one run: nothing is lost, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.audit.corpus import Store
from graphopt.audit.corpus.report import campaign_of
from tests.corpus.faults import GOOD, Scenario, inject


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_counted_twice(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    inject(scenario)
    with Store(scenario.store) as opened:
        (campaign,) = opened.campaigns()
        found = list(opened.records(campaign))
        assert sum(opened.count(campaign_of(opened)).values()) == len(found)
    by_name = {Path(record.name).name: record for record in found}
    # The copy has the contents of another model: it is one with it.
    assert len(found) == len({record.model for record in found}) == GOOD + 3
    assert {record.status for name, record in by_name.items() if name.startswith(("m", "copy"))} == {"done"}
    assert by_name["corrupt.onnx"].status == "failed"
    for name in ("endless.onnx", "greedy.onnx"):
        assert by_name[name].tries, name
