"""Every pass of every peer has an equivalent or a reason, and what the records and tables name exists."""

from __future__ import annotations

import pytest

from graphopt.audit.equivalents import PEERS, Equivalents, equivalents
from graphopt.peers import by_name
from graphopt.peers.reasons import BY_PEER
from graphopt.pipeline import registry


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


def test_the_table_names_registered_passes(table: Equivalents) -> None:
    known = registry()
    assert [row for row in table.rows if not all(name in known for name in row.ours)] == []
    for peer in map(by_name, PEERS.values()):
        assert [ours for ours in peer.counterparts.values() if ours not in known] == []


def test_what_is_said_of_peers_is_about_passes_that_they_have(table: Equivalents) -> None:
    theirs = {(row.peer, row.theirs) for row in table.rows}
    for name in registry().names():
        claims = set(registry().rule_class(name).peers.items())
        assert claims <= theirs, f"{name}: {sorted(claims - theirs)} do not exist"
    for peer, reasons in BY_PEER.items():
        assert {(peer, name) for name in reasons} <= theirs
        assert {(peer, name) for name in by_name(PEERS[peer]).counterparts} <= theirs


def test_nothing_has_both_a_counterpart_and_a_reason() -> None:
    for peer, reasons in BY_PEER.items():
        assert not set(reasons) & set(by_name(PEERS[peer]).counterparts)
