"""Audits of many models: each content once, whatever is new and nothing else, every outcome a record."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from graphopt.audit.corpus import CorpusSettings, Record, Reference, Store, audit_one, run_corpus
from graphopt.audit.corpus.pool import Answer, WorkerPool
from graphopt.audit.corpus.report import campaign_of, report_of
from graphopt.audit.corpus.running import CorpusOutcome
from graphopt.audit.corpus.sources import named
from graphopt.errors import ModelError, UsageError
from tests.cli.conftest import Run
from tests.corpus.models import COUNTING, chain, quick, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes of models without the work of auditing them."""
    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", quick)


def records(store: Path) -> dict[str, Record]:
    with Store(store) as opened:
        return {Path(record.name).name: record for record in opened.records(campaign_of(opened))}


def test_a_task_travels_and_its_record_too(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(chain(), path)
    task = pickle.loads(pickle.dumps((audit_one, Reference(str(path)), COUNTING)))
    record = pickle.loads(pickle.dumps(task[0](*task[1:])))
    assert (record.status, record.how, record.kind) == ("done", "", "")
    rows = {row["name"]: row for row in record.audit["rows"]}
    assert rows["raw, ORT off"]["contents"]["nodes"] == 3
    assert rows["graphopt basic"]["contents"]["nodes"] == 2
    assert rows["graphopt basic"]["verification"] in ("equal", "close")
    assert rows["graphopt basic"]["removed"] == {"eliminate_identity": 1}
    json.dumps(record.to_dict())


@pytest.mark.usefixtures("quickly")
def test_an_outcome_as_plain_data() -> None:
    outcome = CorpusOutcome("r", models=3)
    outcome.statuses["done"] += 2
    plain = json.loads(json.dumps(outcome.to_dict()))
    assert (plain["models"], plain["statuses"]) == (3, {"done": 2})


def test_each_content_is_audited_once(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 3), tmp_path / "store"
    shutil.copy(models / "m000.onnx", models / "again.onnx")
    (models / "bad.onnx").write_bytes(b"bad")
    first = run_corpus([str(models)], store, COUNTING, jobs=2)
    assert (first.listed, first.models, first.reused, dict(first.statuses)) == (5, 4, 0, {"done": 3, "failed": 1})
    found = records(store)
    assert "no ONNX model" in found["bad.onnx"].how
    # A new name and a new time change nothing; new contents do.
    (models / "m001.onnx").rename(models / "renamed.onnx")
    os.utime(models / "m002.onnx", (1, 1))
    assert run_corpus([str(models)], store, COUNTING).new == 0
    write(models, 1, first=7)
    again = run_corpus([str(models)], store, COUNTING)
    assert (again.new, again.reused) == (1, 4)
    assert len(records(store)) == 5
    # Other settings are another question.
    assert run_corpus([str(models)], store, replace(COUNTING, seed=1)).new == 5


@pytest.mark.usefixtures("quickly")
def test_weights_in_files_of_their_own_are_contents(tmp_path: Path) -> None:
    models, store = tmp_path / "models", tmp_path / "store"
    models.mkdir()
    onnx.save(chain(external=True), models / "m.onnx")
    assert run_corpus([str(models)], store, COUNTING).new == 1
    data = bytearray((models / "weights.data").read_bytes())
    data[0] ^= 1
    (models / "weights.data").write_bytes(data)
    assert run_corpus([str(models)], store, COUNTING).new == 1
    with Store(store) as opened:
        assert opened.count(campaign_of(opened)) == {"done": 2}


@pytest.mark.usefixtures("quickly")
def test_a_model_out_of_reach_is_tried_again(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 1), tmp_path / "store"
    late = models / "late.onnx"
    assert dict(run_corpus([str(models), str(late)], store, COUNTING).statuses) == {"unreachable": 1, "done": 1}
    onnx.save(chain(5), late)
    assert dict(run_corpus([str(models), str(late)], store, COUNTING).statuses) == {"done": 1}
    assert {name: record.status for name, record in records(store).items()} == {
        "m000.onnx": "done",
        "late.onnx": "done",
    }


def test_what_no_limit_explains_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(chain(), path)
    monkeypatch.setattr("graphopt.audit.corpus.task.fetched", lambda *_: 1 / 0)
    record = audit_one(Reference(str(path)), COUNTING)
    assert (record.status, record.how) == ("failed", "ZeroDivisionError: division by zero")


@pytest.mark.usefixtures("quickly")
def test_a_model_may_be_too_large(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 1), tmp_path / "store"
    onnx.save(chain(external=True), models / "big.onnx")
    (models / "weights.data").write_bytes(bytes(5000))
    assert dict(run_corpus([str(models)], store, replace(COUNTING, largest=4000)).statuses) == {
        "too large": 1,
        "done": 1,
    }
    assert "MiB allowed" in records(store)["big.onnx"].how


@pytest.mark.usefixtures("quickly")
def test_models_behind_urls_are_fetched(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    onnx.save(chain(external=True), tmp_path / "m.onnx")
    for name in ("m.onnx", "weights.data"):
        memory.pipe(f"/hub/{name}", (tmp_path / name).read_bytes())
    try:
        store = tmp_path / "store"
        assert run_corpus(["memory://hub"], store, COUNTING).statuses == {"done": 1}
        assert run_corpus(["memory://hub/*.onnx"], store, COUNTING).new == 0
        # The same model on this disk is the same model.
        assert run_corpus([str(tmp_path / "m.onnx")], store, COUNTING).new == 0
        memory.pipe("/hub/weights.data", bytes(128))
        assert run_corpus(["memory://hub"], store, COUNTING).new == 1
        memory.rm("/hub/weights.data")
        assert run_corpus(["memory://hub"], store, COUNTING).statuses == {"unreachable": 1}
    finally:
        memory.rm("/hub", recursive=True)


def test_sources(tmp_path: Path) -> None:
    models = write(tmp_path / "models", 2)
    listing = tmp_path / "list.txt"
    listing.write_text(f"# two of them\n{models}/m000.onnx\n\n{models}/*1.onnx\n")
    both = [str(models / "m000.onnx"), str(models / "m001.onnx")]
    assert list(named([str(models)])) == both
    assert list(named([str(listing)])) == both
    assert list(named([str(tmp_path / "**" / "*.onnx")])) == both
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no \.onnx file"):
        list(named([str(tmp_path / "empty")]))
    with pytest.raises(UsageError, match="nosuch"):
        list(named(["nosuch://hub/m.onnx"]))


@pytest.mark.usefixtures("quickly")
def test_shards_are_parts(tmp_path: Path) -> None:
    models = write(tmp_path / "models", 5)
    parts = [run_corpus([str(models)], tmp_path / f"s{i}", COUNTING, shard=(i, 2)) for i in (1, 2)]
    assert sum(part.new for part in parts) == 5
    assert not {*records(tmp_path / "s1")} & {*records(tmp_path / "s2")}
    with pytest.raises(UsageError, match="shard 3/2"):
        run_corpus([str(models)], tmp_path / "s3", COUNTING, shard=(3, 2))


def test_what_is_timed_says_on_which_kind_of_machine(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 1), tmp_path / "store"
    timed = replace(COUNTING, timed=True, rounds=1, starts=0, verify=False)
    assert run_corpus([str(models)], store, timed).statuses == {"done": 1}
    with Store(store) as opened:
        found = report_of(opened, campaign_of(opened))
    (kind,) = found.kinds
    own = next(each for each in found.standings if each.name == "graphopt basic")
    assert own.speed[kind].ratio.count == 1
    assert f"Latency on {kind}" in found.to_markdown()
    # Another kind of machine is another measurement, and both are kept; the model counts once.
    record = records(store)["m000.onnx"]
    with Store(store, write=True) as opened:
        opened.put(campaign_of(opened), replace(record, kind="another"))
    with Store(store) as opened:
        found = report_of(opened, campaign_of(opened))
    assert {*found.kinds} == {kind, "another"}
    own = next(each for each in found.standings if each.name == "graphopt basic")
    assert (own.right, own.speed["another"].ratio.count, found.statuses) == (1, 1, {"done": 1})


@pytest.mark.usefixtures("quickly")
def test_a_killed_run_loses_only_what_ran(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 300), tmp_path / "store"
    run = subprocess.Popen([sys.executable, "-m", "tests.corpus.child", str(models), str(store)], cwd=ROOT)
    until = time.monotonic() + 60
    while time.monotonic() < until and run.poll() is None and done(store) < 3:
        time.sleep(0.01)
    run.kill()
    run.wait()
    kept = done(store)
    assert 3 <= kept < 300
    again = run_corpus([str(models)], store, COUNTING)
    assert (again.reused, again.new) == (kept, 300 - kept)


@pytest.mark.usefixtures("quickly")
def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 200), tmp_path / "store"
    codes, kept = [], [0]
    for times in (1, 2):
        run = subprocess.Popen(
            [sys.executable, "-m", "tests.corpus.child", str(models), str(store), "slowly"], cwd=ROOT,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until = time.monotonic() + 60
        while time.monotonic() < until and done(store) < kept[-1] + 2:
            time.sleep(0.01)
        for _ in range(times):
            run.send_signal(signal.SIGINT)
            time.sleep(0.05)
        said = run.communicate(timeout=60)[1]
        assert "stopping after what runs" in said
        codes.append(run.returncode)
        kept.append(done(store))
    assert codes[0] == 7  # it came to an end by itself
    assert codes[1] != 7
    assert 2 <= kept[1] < kept[2] < 200
    assert run_corpus([str(models)], store, COUNTING, jobs=4).new == 200 - kept[2]


@pytest.mark.usefixtures("quickly")
def test_a_full_disk_under_the_store_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, store = write(tmp_path / "models", 200), tmp_path / "store"
    open_store = Store._open

    def with_little_room(self: Store, write: bool) -> None:
        open_store(self, write)
        self._db.execute("PRAGMA max_page_count = 40")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_open", with_little_room)
        with pytest.raises(ModelError, match=r"cannot write .*full; run it again"):
            run_corpus([str(models)], store, COUNTING)
    kept = done(store)
    assert 0 < kept < 200
    assert run_corpus([str(models)], store, COUNTING, jobs=4).new == 200 - kept


def test_a_full_disk_under_the_workers_is_no_fault_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, store = write(tmp_path / "models", 40), tmp_path / "store"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp")

    with monkeypatch.context() as patch:
        patch.setattr("graphopt.audit.corpus.task._audited", full)
        record = audit_one(Reference(str(models / "m000.onnx")), COUNTING)
        assert (record.status, record.settled) == ("disk", False)
        with pytest.raises(ModelError, match="25 models in a row failed with: No space left"):
            run_corpus([str(models)], store, COUNTING)
    with Store(store) as opened:
        assert opened.count(campaign_of(opened)) == {"disk": 25}
    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", quick)
    assert run_corpus([str(models)], store, COUNTING).statuses == {"done": 40}
    with Store(store) as opened:
        assert opened.count(campaign_of(opened)) == {"done": 40}


@pytest.mark.usefixtures("quickly")
def test_a_task_that_loses_every_worker_is_a_record(tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 3), tmp_path / "store"

    class Losing(WorkerPool):
        """Whose workers do not survive one of the models."""

        def next(self, seconds: float) -> Answer | None:
            answer = super().next(seconds)
            fatal = answer is not None and getattr(answer.result, "name", "").endswith("m001.onnx")
            return replace(answer, result=None, lost="killed") if fatal else answer

    found = run_corpus([str(models)], store, COUNTING, engine=lambda: Losing(1))
    assert (found.lost, dict(found.statuses)) == (3, {"done": 2, "lost": 1})
    assert records(store)["m001.onnx"].how == "killed"
    assert run_corpus([str(models)], store, COUNTING).statuses == {"done": 1}


@pytest.mark.usefixtures("quickly")
def test_workers_of_another_version_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = write(tmp_path / "models", 1)

    def other(reference: Reference, settings: CorpusSettings, disk: int | None = None) -> Record:
        machine = {"packages": {"onnxruntime": "0.1"}}
        return replace(quick(reference, settings), versions="another", machine=machine)

    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", other)
    with pytest.raises(UsageError, match=r"other versions than this machine \(onnxruntime 0\.1\)"):
        run_corpus([str(models)], tmp_path / "store", COUNTING)


def done(store: Path) -> int:
    try:
        with Store(store) as opened:
            return sum(opened.count(each).get("done", 0) for each in opened.campaigns())
    except (ModelError, sqlite3.Error):
        return 0


def test_one_writer(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Store(store, write=True), pytest.raises(UsageError, match="another run"), Store(store, write=True):
        pass
    (tmp_path / "text").write_text("not a store, and long enough for a header of a database that would be one")
    with pytest.raises(ModelError, match="not a database"):
        Store(tmp_path / "text", write=True)
    with pytest.raises(ModelError, match="not a store"):
        Store(tmp_path / "missing")
    with sqlite3.connect(store) as raw:
        raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    raw.close()
    with pytest.raises(ModelError, match="schema 99, expected 1"):
        Store(store)


def test_wrong_settings_are_told_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="jobs"):
        run_corpus([], tmp_path / "store", COUNTING, jobs=0)
    with pytest.raises(UsageError, match="unknown level"):
        run_corpus([], tmp_path / "store", CorpusSettings(levels=("none",)))


@pytest.mark.usefixtures("quickly")
def test_a_run_that_leaves_models_says_so(run: Run, tmp_path: Path) -> None:
    models, store = write(tmp_path / "models", 1), tmp_path / "store"
    left = run("corpus", "run", models, tmp_path / "nosuch.onnx", "--store", store, "--no-latency", "--against", "none")
    assert left.exit_code == 3, left.output
    assert "1 unreachable" in left.stdout
    assert run("corpus", "run", models, "--store", store, "--no-latency", "--against", "none").exit_code == 0


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("source", ["m\udcff.onnx", "list.txt"])
def test_a_name_that_is_no_text_is_told(tmp_path: Path, source: str) -> None:
    (tmp_path / "list.txt").write_bytes(b"m\xff.onnx\n")
    with pytest.raises(UsageError, match="a name in UTF-8 expected"):
        run_corpus([str(tmp_path / source)], tmp_path / "store", COUNTING)
    with pytest.raises(UsageError, match="release .*a name in UTF-8 expected"):
        run_corpus([str(write(tmp_path / "models", 1))], tmp_path / "store", COUNTING, release="\udcff")


def test_a_database_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE precious (text)")
    before = path.read_bytes()
    with pytest.raises(ModelError, match="not a store of audits"):
        Store(path, write=True)
    assert path.read_bytes() == before
    assert not path.with_name("theirs.db-wal").exists()
