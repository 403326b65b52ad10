"""Every pass of every peer has an equivalent or a reason, and what the records and tables name exists."""

from __future__ import annotations

import pytest

from graphopt.audit.equivalents import PEERS, Equivalents, equivalent_passes, equivalents
from graphopt.peers import by_name
from graphopt.peers.reasons import BY_PEER
from graphopt.pipeline import registry

SINCE = {("onnxruntime", "SwiGluFusion"): "1.32"}
"""Passes that not every version that is supported has."""


@pytest.fixture(scope="module")
def table() -> Equivalents:
    absent = [name for name, peer in PEERS.items() if not by_name(peer).available()]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    return equivalents()


def test_every_pass_of_every_peer_is_accounted_for(table: Equivalents) -> None:
    assert [row for row in table.rows if not row.accounted] == []
    assert {row.peer for row in table.rows} == set(PEERS)
    assert sum(row.peer == "onnxoptimizer" for row in table.rows) == 48


def test_the_table_says_what_the_passes_say(table: Equivalents) -> None:
    known = registry()
    listed = {(row.peer, row.theirs, ours) for row in table.rows for ours in row.ours}
    stated = {(peer, theirs, name) for name in known.names() for peer, theirs in known.rule_class(name).equivalents()}
    assert stated <= listed
    inherited = {(peer.replace("onnxsim", "onnxoptimizer"), theirs, ours) for peer, theirs, ours in listed - stated}
    assert inherited <= stated
    for (peer, theirs), ours in equivalent_passes().items():
        assert theirs not in ours[1:], f"{peer}: the pass of the same name comes first"


def test_what_is_said_of_peers_is_about_passes_that_they_have(table: Equivalents) -> None:
    theirs = {(row.peer, row.theirs) for row in table.rows}
    later = {(peer, name) for (peer, name), since in SINCE.items() if _before(table.versions[peer], since)}
    assert not later & theirs
    theirs |= later
    assert set(equivalent_passes()) <= theirs
    assert {(peer, name) for peer, reasons in BY_PEER.items() for name in reasons} <= theirs


def _before(version: str, since: str) -> bool:
    return tuple(map(int, version.split(".")[:2])) < tuple(map(int, since.split(".")))


def test_nothing_has_both_an_equivalent_and_a_reason() -> None:
    reasons = {(peer, name) for peer, names in BY_PEER.items() for name in names}
    assert reasons & set(equivalent_passes()) == set()
