"""Dask as the engine: workers may die, and the scheduler may go and come back; nothing is lost or counted twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from graphopt.audit.corpus import Store, run_corpus
from graphopt.audit.corpus.fleet import Fleet
from graphopt.audit.corpus.record import digest_of
from graphopt.audit.corpus.report import campaign_of
from graphopt.errors import ModelError
from tests.corpus.models import COUNTING, quick, slowly, write
from tests.corpus.test_running import done


@contextmanager
def killing(models: Path) -> Iterator[list[int]]:
    """Kill one of this process's Dask workers while it is at a model."""
    stop, killed = threading.Event(), []

    def kill() -> None:
        while not killed and not stop.wait(0.01):
            at_work = {path.read_text(encoding="ascii") for path in models.glob("*.begun")}
            for each in psutil.Process().children(recursive=True):
                if str(each.pid) in at_work and is_worker(each):
                    os.kill(each.pid, signal.SIGKILL)
                    killed.append(each.pid)
                    return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def is_worker(process: psutil.Process) -> bool:
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_workers_that_are_killed_cost_their_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", slowly)
    monkeypatch.setattr("graphopt.audit.corpus.running._MOST_LOST", 50)
    models, store = write(tmp_path / "models", 16), tmp_path / "store"
    with killing(models) as killed:
        found = run_corpus([str(models)], store, COUNTING, engine=partial(Fleet, 2))
    assert killed
    assert found.lost >= 1
    assert found.statuses == {"done": 16}
    with Store(store) as opened:
        assert opened.count(campaign_of(opened)) == {"done": 16}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_models_behind_urls_go_where_they_were_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", quick)
    near = []
    submit = Fleet.submit

    def watch(self: Fleet, *words: Any, **more: Any) -> None:
        near.append(more["near"])
        submit(self, *words, **more)

    monkeypatch.setattr(Fleet, "submit", watch)
    models, store = write(tmp_path / "models", 6), tmp_path / "store"
    found = run_corpus([f"file://{models}"], store, COUNTING, engine=lambda: Fleet(2))
    assert found.statuses == {"done": 6}
    assert sorted(near) == 6 * [""] + 6 * ["127.0.0.1"]  # to read each, and to audit it
    shelf = Path(tempfile.gettempdir())
    left = {path.name for path in shelf.glob("graphopt-models-*/*") if path.is_dir()}
    assert not left & {digest_of(f"file://{path}") for path in models.iterdir()}


@pytest.mark.slow
def test_an_interrupt_of_the_whole_family_ends_the_run_in_order(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 60), tmp_path / "store"
    command = [sys.executable, "-m", "graphopt", "corpus", "run", models, "--store", store, "--no-latency",
               "--level", "basic", "--against", "none", "--scheduler", "local"]  # fmt: skip
    run = subprocess.Popen([*map(str, command)], start_new_session=True, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while time.monotonic() < until and done(store) < 3:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    assert "stopping after what runs" in run.communicate(timeout=60)[1]
    assert run.returncode == 130
    assert 3 <= done(store) < 60


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.audit.corpus.fleet._CONNECT_SECONDS", 0.2)
    with pytest.raises(ModelError, match="tcp://127"):
        Fleet(scheduler="tcp://127.0.0.1:9")
