"""What records say: standings, changes between releases, the gate, shards joined, and the page."""

from __future__ import annotations

import copy
import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphopt.audit.contestants import BASELINE, UNOPTIMIZED
from graphopt.audit.corpus import Record, Reference, Store, audit_one
from graphopt.audit.corpus.changes import Comparison, compare, confirm
from graphopt.audit.corpus.report import campaign_of, releases_of, report_of
from graphopt.audit.corpus.tables import COLUMNS
from graphopt.errors import UsageError
from tests.cli.conftest import Run
from tests.corpus.models import COUNTING, chain

TIMED = replace(COUNTING, timed=True)


def row(name: str, nodes: int = 5, speed: float | None = None, **changes: Any) -> dict[str, Any]:
    spread = {"median": speed, "low": speed * 0.99, "high": speed * 1.01} if speed else None
    verdict = "tie" if speed is None or abs(speed - 1) < 0.03 else "faster" if speed > 1 else "slower"
    contents = {"nodes": nodes, "file_bytes": 10 * nodes, "ops": {"Relu": nodes}, "parameters": 0}
    plain = {
        "status": "ok",
        "verification": "equal",
        "message": "",
        "seconds": 0.1,
        "version": "1",
        "contents": contents,
    }
    timing = {"speedup": {"1": {**spread, "verdict": verdict}} if spread else {}}
    return {"name": name, "passes": {}, "removed": {}, **plain, **timing, **changes}


def record(model: str, own: dict[str, Any], kind: str = "K", **changes: Any) -> Record:
    audit = {"threads": [1], "rows": [row(UNOPTIMIZED, 10), row(BASELINE, 10), own]}
    return Record(model, f"/zoo/{model}.onnx", "done", kind=kind, audit=audit, **changes)


def store_of(path: Path, release: str, records: Sequence[Record]) -> Path:
    with Store(path, write=True) as store:
        campaign = store.campaign(TIMED, {"graphopt": release}, release)
        for each in records:
            store.put(campaign, each)
    return path


def own(nodes: int = 5, speed: float | None = 2.0, **changes: Any) -> dict[str, Any]:
    return row("graphopt all", nodes, speed, **changes)


def compared(old: Path, new: Path, margin: float = 0.05) -> Comparison:
    with Store(old) as before, Store(new) as after:
        return compare(before, campaign_of(before), after, campaign_of(after), margin)


def test_standings_have_the_models_behind_them(tmp_path: Path) -> None:
    path = store_of(tmp_path / "s", "1", [
        record("a", own(passes={"fuse": 2}, removed={"fuse": 3})),
        record("b", own(speed=0.5, passes={"fuse": 1}, removed={"fuse": 1})),
        record("c", own(verification="mismatch", message="y differs")),
        record("d", own(status="crashed", message="SIGSEGV", contents=None, speedup={})),
        Record("e", "/zoo/e.onnx", "timeout", "stopped after 3 s", "graphopt all: checking"),
    ])  # fmt: skip
    with Store(path) as store:
        found = report_of(store, campaign_of(store))
    standing = next(each for each in found.standings if each.name == "graphopt all")
    assert (standing.right, standing.wrong) == (2, {"/zoo/c.onnx": "y differs"})
    assert standing.failed == {"/zoo/d.onnx": "crashed: SIGSEGV"}
    assert standing.speed["K"].slower == {"/zoo/b.onnx": 0.5}
    assert standing.speed["K"].ratio.value == pytest.approx(1.0)
    assert standing.nodes.value == pytest.approx(0.5)
    assert found.troubles == {"/zoo/e.onnx": ("timeout", "stopped after 3 s", "graphopt all: checking")}
    (fuse,) = found.firings
    assert (fuse.times, fuse.removed, fuse.models) == (3, 4, {"/zoo/a.onnx": 2, "/zoo/b.onnx": 1})
    (relu,) = found.operators
    assert (relu.models, relu.before, relu.after["graphopt all"]) == (4, 40, 5 + 5 + 10 + 10)
    assert not found.ok
    text = found.to_markdown()
    assert "/zoo/e.onnx: graphopt all: checking: timeout" in text
    json.dumps(found.to_dict())


def test_changes_are_sorted_worst_first(tmp_path: Path) -> None:
    old = store_of(tmp_path / "old", "1", [record(model, own()) for model in "abcdefg"])
    new = store_of(tmp_path / "new", "2", [
        record("a", own()),
        record("b", own(nodes=6)),
        record("c", own(speed=1.0)),
        record("d", own(speed=1.5)),
        record("e", own(verification="mismatch", message="y differs")),
        record("f", own(speed=1.97)),  # within the margin
        record("g", own(speed=0.1), kind="another machine"),
        record("h", own()),  # new
    ])  # fmt: skip
    found = compared(old, new)
    assert [(each.what, each.model) for each in found.changes] == [
        ("wrong", "e"), ("slower", "c"), ("slower", "d"), ("more nodes", "b"), ("larger", "b"),
    ]  # fmt: skip
    assert (found.compared, found.untimed) == (7, 1)
    assert [each.model for each in found.breaking] == ["e", "c", "d"]
    back = compared(new, old)
    assert [(each.what, each.model) for each in back.changes] == [
        ("faster", "c"), ("faster", "d"), ("fewer nodes", "b"), ("smaller", "b"), ("right again", "e"),
    ]  # fmt: skip


def test_what_is_wrong_is_wrong_on_any_machine(tmp_path: Path) -> None:
    """A cluster of several kinds of machines audits a model wherever there is room, so only times stay apart."""
    old = store_of(tmp_path / "old", "1", [record("a", own()), record("b", own()), record("c", own())])
    new = store_of(tmp_path / "new", "2", [
        record("a", own(verification="mismatch", message="y differs"), kind="L"),
        record("b", own(nodes=7, speed=0.1), kind="L"),
        record("c", own(nodes=7, speed=0.1), kind="K"),
        record("c", own(nodes=7, speed=0.1), kind="L"),
    ])  # fmt: skip
    found = compared(old, new)
    assert [(each.what, each.model) for each in found.changes] == [
        ("wrong", "a"), ("slower", "c"), ("more nodes", "b"), ("more nodes", "c"), ("larger", "b"), ("larger", "c"),
    ]  # fmt: skip
    assert (found.compared, found.untimed) == (3, 2)
    counted = store_of(tmp_path / "counted", "3", [record("a", own(status="crashed", message="SIGSEGV"), kind="")])
    assert [each.what for each in compared(old, counted).breaking] == ["failed"]


def test_a_model_without_audit_has_failed(tmp_path: Path) -> None:
    failed = Record("a", "/zoo/a.onnx", "crashed", "SIGSEGV", kind="K")
    old, new = store_of(tmp_path / "old", "1", [record("a", own())]), store_of(tmp_path / "new", "2", [failed])
    assert [(each.what, each.after) for each in compared(old, new).changes] == [("failed", "crashed: SIGSEGV")]
    assert [each.what for each in compared(new, old).changes] == ["no longer failed"]


@pytest.mark.parametrize(("measured", "left"), [([2.0, 2.0], 0), ([1.0, 1.0], 1), ([1.0, 2.0], 0)])
def test_what_seems_slower_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: list[float], left: int
) -> None:
    from graphopt.audit.corpus.task import machine

    kind = machine().kind
    old = store_of(tmp_path / "old", "1", [record("a", own(), kind)])
    new = store_of(tmp_path / "new", "2", [record("a", own(speed=1.0), kind)])
    again = iter(measured)
    monkeypatch.setattr(
        "graphopt.audit.corpus.changes.audit_one", lambda reference, settings: record("a", own(speed=next(again)), kind)
    )
    with Store(old) as before, Store(new, write=True) as after:

        def once() -> Comparison:
            return compare(before, campaign_of(before), after, campaign_of(after), 0.05)

        found = confirm(after, once(), 2, once)
        assert len(found.breaking) == left
        assert after.repeats(campaign_of(after), "a", kind)


def test_shards_are_joined_and_nothing_counts_twice(tmp_path: Path) -> None:
    one = store_of(tmp_path / "one", "1", [record("a", own()), record("b", own())])
    failed = Record("c", "/zoo/c.onnx", "disk", "full", kind="K")
    two = store_of(tmp_path / "two", "1", [record("b", own(speed=9.0)), failed])
    three = store_of(tmp_path / "three", "1", [record("c", own())])
    with Store(tmp_path / "all", write=True) as store:
        taken = []
        for part in (one, two, three, one):
            with Store(part) as other:
                taken.append(store.merge(other))
        assert taken == [2, 1, 1, 0]
        campaign = campaign_of(store)
        assert store.count(campaign) == {"done": 3}
        assert len(list(store.records(campaign))) == 3


def test_releases_have_names(tmp_path: Path) -> None:
    path = store_of(tmp_path / "s", "1", [record("a", own())])
    store_of(path, "2", [record("a", own(speed=1.0))])
    with Store(path) as store:
        assert campaign_of(store).release == "2"
        assert campaign_of(store, "1").release == "1"
        assert campaign_of(store, but=campaign_of(store)).release == "1"
        with pytest.raises(UsageError, match="no release '3'; found 1, 2"):
            campaign_of(store, "3")
        with pytest.raises(UsageError, match="release '2' is the one to be compared; found 1, 2"):
            campaign_of(store, "2", but=campaign_of(store))


def test_the_gate_makes_no_store(tmp_path: Path, run: Run) -> None:
    with Store(tmp_path / "empty", write=True):
        pass
    found = run("corpus", "gate", tmp_path / "mistyped", "--against", tmp_path / "empty")
    assert (found.exit_code, "not a store of audits" in found.stderr) == (3, True)
    assert not list(tmp_path.glob("mistyped*"))
    found = run("corpus", "gate", tmp_path / "empty", "--against", tmp_path / "empty")
    assert (found.exit_code, "no release; found none" in found.stderr) == (2, True)


@pytest.mark.slow
def test_the_gate_measures_again(tmp_path: Path, run: Run) -> None:
    """With the real task: what noise made slower is measured again and passes, what is slower stays so."""
    onnx.save(chain(), tmp_path / "m.onnx")
    timed = replace(TIMED, rounds=6, starts=2, budget=2.0)
    first = audit_one(Reference(str(tmp_path / "m.onnx")), timed)
    assert first.audit is not None

    def put(path: Path, release: str, speed: float) -> Path:
        body = copy.deepcopy(first.audit)
        body["rows"][-1]["speedup"]["1"].update(median=speed, low=speed * 0.999, high=speed * 1.001)
        with Store(path, write=True) as store:
            store.put(store.campaign(timed, {"graphopt": release}, release), replace(first, audit=body))
            # The model has moved since.
            store.put_references([Reference(str(tmp_path / "moved.onnx"), first.model)])
        return path

    (tmp_path / "m.onnx").rename(tmp_path / "moved.onnx")
    found = run(
        "corpus", "gate", put(tmp_path / "new", "2", 0.01), "--against", put(tmp_path / "old", "1", 0.1), "--repeat", 3
    )
    assert found.exit_code == 0, found.output
    assert "nothing changed" in found.stdout or "faster" in found.stdout
    found = run("corpus", "gate", tmp_path / "new", "--against", put(tmp_path / "fast", "1", 100.0), "--json")
    assert found.exit_code == 1
    (change,) = [each for each in json.loads(found.stdout)["changes"] if each["what"] == "slower"]
    assert change["contestant"] == "graphopt basic"
    with Store(tmp_path / "new") as store:
        assert len(store.repeats(campaign_of(store), first.model, first.kind)) >= 2


def test_a_table_of_all_records(tmp_path: Path, run: Run) -> None:
    path = store_of(tmp_path / "s", "1", [
        record("a", own(passes={"fuse": 2})), Record("e", "/zoo/e.onnx", "timeout", "stopped after 3 s"),
    ])  # fmt: skip
    assert run("corpus", "report", path, "--table", tmp_path / "t.csv").exit_code == 0
    with (tmp_path / "t.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["contestant"] for line in lines] == [UNOPTIMIZED, BASELINE, "graphopt all", ""]
    assert (lines[2]["nodes"], lines[2]["speedup"], json.loads(lines[2]["passes"])) == ("5", "2.0", {"fuse": 2})
    assert (lines[3]["outcome"], lines[3]["nodes"]) == ("timeout", "")
    assert run("corpus", "report", path, "--table", tmp_path / "t.txt").exit_code == 2
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert run("corpus", "report", path, "--table", tmp_path / "t.parquet").exit_code == 0
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.to_pylist()[2]["speedup"] == 2.0
    assert table.to_pylist()[3]["contestant"] is None


def test_releases_side_by_side(tmp_path: Path, run: Run) -> None:
    path = store_of(tmp_path / "s", "1", [record("a", own(nodes=8)), record("b", own(speed=0.5))])
    store_of(path, "2", [record("a", own(speed=1.0)), record("b", own(verification="mismatch", message="y differs"))])
    with Store(path) as store:
        one, two = releases_of(store)
    assert (one.release, one.models, one.right, one.wrong, one.speed["K"][1:]) == ("1", 2, 2, 0, (1, 1))
    assert (two.release, two.right, two.wrong, two.nodes) == ("2", 1, 1, pytest.approx(0.5))
    done = run("corpus", "report", path, "--releases", "--json")
    assert [each["release"] for each in json.loads(done.stdout)["releases"]] == ["1", "2"]
    assert "### Releases" in run("corpus", "report", path, "--releases", "--markdown").stdout
    run("corpus", "report", path, "--releases", "--html", tmp_path / "p.html")
    assert '<table id="releases">' in (tmp_path / "p.html").read_text()


def test_the_commands(tmp_path: Path, run: Run) -> None:
    old = store_of(tmp_path / "old", "1", [record("a", own())])
    new = store_of(tmp_path / "new", "2", [record("a", own(speed=1.0)), record("<b>", own())])
    page = tmp_path / "page.html"
    done = run("corpus", "report", new, "--against", old, "--html", page)
    assert done.exit_code == 0, done.output
    assert "1 slower" in done.stdout
    text = page.read_text()
    assert "zoo/<b>" not in text
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert [model["name"] for model in data["models"]] == ["/zoo/<b>.onnx", "/zoo/a.onnx"]
    assert 'id="releases"' not in text
    assert data["changes"] == [["slower", "/zoo/a.onnx", "graphopt all", "2.00x", "1.00x"]]
    assert {"standings", "models", "passes", "operators", "changes"} <= set(re.findall(r'<table id="(\w+)"', text))
    assert run("corpus", "gate", new, "--against", old, "--repeat", 0).exit_code == 1
    assert run("corpus", "gate", new, "--against", old, "--repeat", 0, "--margin", 1.5).exit_code == 0
    assert run("corpus", "merge", tmp_path / "all", old, new).exit_code == 0
    assert json.loads(run("corpus", "report", tmp_path / "all", "--json", "--release", "1").stdout)["statuses"] == {
        "done": 1
    }
    assert run("corpus", "report", tmp_path / "none").exit_code == 3
