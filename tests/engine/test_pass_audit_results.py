"""The committed pass audit: nothing of ours wrong, a reason for everything weaker, and the page says what was found."""

from __future__ import annotations

import pytest

from benchmarks import pass_audit, results
from graphopt.audit.passes.reasons import REASONS
from graphopt.peers import by_name

STORED = results.load(pass_audit.KIND)
DATA = STORED["data"] if STORED else []


def test_demos_and_twenty_real_architectures() -> None:
    names = {entry["model"] for entry in DATA}
    assert {f"demo/{name}" for name in pass_audit.DEMOS} <= names
    real = {
        name.partition("/")[2].removesuffix("_dyn").removesuffix("_unfused") for name in names if name[:5] != "demo/"
    }
    assert len(real) >= 20
    for entry in DATA:
        compared = len(entry["rows"]) + sum(entry["idle"].values())
        assert entry["failures"] or compared > 100, f"{entry['model']}: only {compared} passes compared"


@pytest.mark.parametrize("entry", DATA, ids=lambda entry: entry["model"])
def test_nothing_wrong_and_a_reason_for_everything_weaker(entry: dict) -> None:
    for row in entry["rows"]:
        what = f"{row['peer']} {row['peer_pass']}: {row['reason']}"
        assert row["verdict"] != "ours wrong", what
        assert row["reason"] or row["verdict"] not in {"weaker", "peer wrong"}, what


def test_the_page_is_written_from_the_results() -> None:
    assert pass_audit.PAGE.read_text() == pass_audit.text(DATA)


def test_recorded_reasons_are_about_passes_that_exist() -> None:
    for peer, name in REASONS:
        assert name in by_name(peer).passes()
