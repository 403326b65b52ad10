"""Models of earlier runs are freed, though nothing but the paused collector could find them."""

from __future__ import annotations

import gc
import weakref

import pytest

from graphopt import PassManager, demo
from graphopt.ir import collector


def test_models_that_nobody_uses_are_collected_before_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_ledger", ledger := collector._Ledger())
    monkeypatch.setattr(ledger, "room", 0)
    model, manager = demo.conv_maxpool(), PassManager()
    result = manager.run(model)
    first = weakref.ref(result.view)
    del result
    second = manager.run(model)
    assert first() is None
    assert list(ledger.alive) == [second.view]


def test_what_is_still_used_is_not_collected_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_ledger", ledger := collector._Ledger())
    collected: list[int] = []
    monkeypatch.setattr(collector.gc, "collect", lambda: collected.append(ledger.loaded))

    class Kept:
        pass

    kept = [Kept() for _ in range(8)]
    for one in kept:
        collector.make_room()
        with collector.paused_gc():
            collector.weigh(one, ledger.room // 2 + 1)
            collector.weigh(one, ledger.room)
    assert len(collected) == 2
    assert gc.isenabled()
