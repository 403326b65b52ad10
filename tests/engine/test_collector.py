"""Models of earlier runs are freed, though nothing but the paused collector could find them."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphopt import PassManager, demo
from graphopt.ir import Model
from graphopt.rewrite import Decline, Driver, Log, Node, OpRule, Outcome, Rewriter
from graphopt.system import collector


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


class _Weighed:
    """Something that can be weighed."""


def test_models_may_be_weighed_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_ledger", ledger := collector._Ledger())
    monkeypatch.setattr(collector.gc, "collect", lambda: None)
    kept: list[_Weighed] = []

    def load(_: int) -> None:
        for _ in range(200):
            ledger.loaded = 1 << 60  # it is always time to collect
            collector.make_room()
            kept.append(_Weighed())
            collector.weigh(kept[-1], 1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(load, range(6)))
    finally:
        sys.setswitchinterval(interval)
    assert len(ledger.alive) == 1200


def test_an_import_is_not_collected_for() -> None:
    count = "sum(each['collections'] for each in gc.get_stats())"
    script = f"import gc, graphopt; before = {count}; graphopt.optimize_file; print({count} - before, gc.isenabled())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    collections, enabled = run.stdout.split()
    assert int(collections) <= 3, "a hundred where the collector runs"
    assert enabled == "True"


class _KeepsRefusal(OpRule):
    """Tries several ways and raises the first refusal, which its frame still holds."""

    name = "keeps_refusal"
    ops = ("Conv",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        kept = None
        for way in ("one", "other"):
            try:
                raise Decline("{} way does not fit", way)
            except Decline as reason:
                kept = kept or reason
        raise kept or Decline


def test_a_refusal_that_a_rule_kept_holds_no_frame() -> None:
    driver = Driver(Model.load(demo.conv_maxpool()), Log(listen=True))
    driver.run_rules([_KeepsRefusal()])
    assert "one way does not fit" in str(driver.log.near_misses)
    held = [each for each in gc.get_objects() if isinstance(each, Decline)]
    assert all(each.__traceback__ is None for each in held)
