"""`make bench`: parts that exist, within two hours, that go on where they were cut short; what got slower comes first."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import bench, results, side_by_side
from benchmarks.__main__ import app
from benchmarks.families import FAMILIES

HERE = {"revision": "b", "processor": "P", "day": "d"}


def test_parts_are_commands_and_take_two_hours_at_most() -> None:
    known = {each.name or each.callback.__name__.replace("_", "-") for each in app.registered_commands if each.callback}
    assert {command[0] for _, _, command in bench.PARTS} | set(bench._PAGES) <= known
    assert sum(minutes for _, minutes, _ in bench.PARTS) <= 115
    assert len({name for name, _, _ in bench.PARTS}) == len(bench.PARTS)


def test_what_was_done_here_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[str, Any] = {}
    ran: list[str] = []

    def run(command: tuple[str, ...], seconds: float) -> bool:
        ran.append(command[0])
        assert seconds > 0
        return command[0] != "families"

    monkeypatch.setattr(results, "machine", lambda: HERE)
    monkeypatch.setattr(results, "load", lambda kind: {"data": dict(stored)} if stored else None)
    monkeypatch.setattr(results, "save", lambda kind, data: stored.update(data))
    monkeypatch.setattr(bench, "_run", run)
    bench.run(10, None, fresh=False)
    assert len(ran) == len(bench.PARTS) + len(bench._PAGES)
    ran.clear()
    bench.run(10, None, fresh=False)
    assert ran == ["families", "families", *bench._PAGES], "both were cut short"
    monkeypatch.setattr(results, "machine", lambda: {**HERE, "revision": "c"})
    ran.clear()
    bench.run(10, ["margins"], fresh=False)
    assert ran == ["margins", *bench._PAGES]


def _row(graphopt: float, **more: Any) -> dict[str, Any]:
    return {"network": "n", "ms": {"graphopt": graphopt, "runtime": 1.0}, **more}


def test_what_got_slower_is_told_with_what_it_was() -> None:
    old = _row(0.8, revision="a", processor="P")
    new = side_by_side.stamped(_row(0.9), old, HERE)
    assert new["before"] == 0.8
    again = side_by_side.stamped(_row(0.91), new, HERE)
    assert again["before"] == 0.8, "measured twice at one revision: what counts is the one before it"
    elsewhere = side_by_side.stamped(_row(0.9), {**old, "processor": "Q"}, HERE)
    assert "before" not in elsewhere
    fine = side_by_side.stamped(_row(0.81), old, HERE)
    assert side_by_side.slower_than_before([fine, elsewhere]) == ""
    told = side_by_side.slower_than_before([fine, elsewhere, new]).splitlines()
    assert told[-1:] == ["| n | P | 1 | 0.8 | 0.9 |"], told
    assert side_by_side.is_new(new, HERE)
    assert not side_by_side.is_new(old, HERE)
    assert not side_by_side.is_new(None, HERE)


def test_families_name_networks_once() -> None:
    networks = [key for _, keys in FAMILIES.values() for key in keys]
    assert len(networks) == len(set(networks)) >= 150
