"""Models behind URLs: each is fetched once, within a limit of disk, and nothing stays."""

from __future__ import annotations

import functools
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import onnx
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from graphopt.audit.corpus import Store, run_corpus
from graphopt.audit.corpus.downloads import ChangedError, UnreachableError, download
from graphopt.audit.corpus.record import Reference, digest_of
from graphopt.audit.corpus.report import campaign_of
from graphopt.audit.corpus.sources import TooLargeError, fetched, located
from tests.corpus.models import COUNTING, chain, quick, write

MIB = 1 << 20


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """A place behind `memory://hub`; how often each of its files was opened. This machine's downloads are empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", quick)
    found: Counter[str] = Counter()
    open_file = MemoryFileSystem.open

    def counting(self: Any, path: str, mode: str = "rb", **more: Any) -> Any:
        found[path.rpartition("/")[2]] += "r" in mode
        return open_file(self, path, mode, **more)

    monkeypatch.setattr(MemoryFileSystem, "open", counting)
    yield found
    with suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm("/hub", recursive=True)


def put(name: str, contents: bytes) -> None:
    fsspec.filesystem("memory").pipe(f"/hub/{name}", contents)


def left() -> list[str]:
    """Models on the shelf of this machine."""
    return [path.name for path in Path(tempfile.gettempdir()).glob("graphopt-models-*/*") if path.is_dir()]


def held() -> dict[Path, int]:
    """The files of models on the shelf, and their sizes."""
    found = {}
    for path in Path(tempfile.gettempdir()).glob("graphopt-models-*/*/files/*"):
        with suppress(FileNotFoundError):
            found[path] = path.stat().st_size
    return found


def test_each_is_fetched_once_and_goes(hub: Counter[str], tmp_path: Path) -> None:
    for number in range(12):
        put(f"m{number}.onnx", chain(number).SerializeToString())
    put("copy.onnx", chain(3).SerializeToString())
    onnx.save(chain(20, external=True), tmp_path / "w.onnx")
    for name in ("w.onnx", "weights.data"):
        put(name, (tmp_path / name).read_bytes())
    found = run_corpus(["memory://hub"], tmp_path / "store", COUNTING, jobs=2)
    assert (found.listed, found.models, found.reused, dict(found.statuses)) == (14, 13, 0, {"done": 13})
    assert set(hub.values()) == {1}
    assert set(hub) >= {"weights.data", "copy.onnx"}
    assert not left()
    # What has the stamp that it had is not fetched; what is new is, once.
    put("m1.onnx", chain(31).SerializeToString())
    put("late.onnx", chain(32).SerializeToString())
    again = run_corpus(["memory://hub"], tmp_path / "store", COUNTING, jobs=2)
    assert (again.models, again.reused, dict(again.statuses)) == (14, 12, {"done": 2})
    assert {name for name, times in hub.items() if times > 1} == {"m1.onnx"}
    assert hub["late.onnx"] == 1
    with Store(tmp_path / "store") as store:
        assert store.count(campaign_of(store)) == {"done": 15}


def test_what_tells_no_versions_is_fetched_and_not_audited_again(
    hub: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphopt.audit.corpus.sources._TELLING", ())
    for number in range(3):
        put(f"m{number}.onnx", chain(number).SerializeToString())
    assert run_corpus(["memory://hub"], tmp_path / "store", COUNTING).new == 3
    again = run_corpus(["memory://hub"], tmp_path / "store", COUNTING)
    assert (again.models, again.reused, again.new) == (3, 3, 0)
    assert set(hub.values()) == {2}
    assert not left()


@pytest.mark.usefixtures("hub")
def test_the_disk_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight workers want 1 MiB each, and there are 3: they wait for each other, and one that never fits says so."""
    for number in range(16):
        model = chain(number)
        model.doc_string = "x" * MIB
        put(f"m{number}.onnx", model.SerializeToString())
    model.doc_string = "x" * 4 * MIB
    put("wide.onnx", model.SerializeToString())
    most = []

    def watch(reference: Reference, *more: Any) -> Any:
        time.sleep(0.02)
        seen = held()
        while seen != (seen := held()):  # one moment, not files that went beside files that came
            pass
        most.append(sum(seen.values()))
        return quick(reference, *more)

    monkeypatch.setattr("graphopt.audit.corpus.running.audit_one", watch)
    store = tmp_path / "store"
    found = run_corpus(["memory://hub"], store, COUNTING, jobs=8, disk=3 * MIB + MIB // 2)
    assert dict(found.statuses) == {"done": 16, "unreachable": 1}
    assert MIB < max(most) <= 3 * MIB + MIB // 2
    with Store(store) as opened:
        how = {record.name: record.how for record in opened.records(campaign_of(opened))}
    assert "needs 4.0 MiB of disk, and all downloads may have 3.5 MiB" in how["memory:///hub/wide.onnx"]
    assert not left()
    # It lies in this machine's room, so it is tried again with more.
    assert run_corpus(["memory://hub"], store, COUNTING, disk=9 * MIB).statuses == {"done": 1}


@pytest.mark.usefixtures("hub")
def test_those_who_need_all_the_room_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a part and needs more than is left: one waits with what it has, the others without."""
    done = []

    def fetch(found: Any) -> None:
        found.ask(4)
        (found.files / "a").write_bytes(b"1234")
        time.sleep(0.05)
        found.ask(9)

    def work(name: str) -> None:
        with download(digest_of(name), 10) as found:
            found.fill(fetch)
            done.append(name)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 6
    monkeypatch.setattr("graphopt.audit.corpus.downloads._PATIENCE", 0.1)
    with (
        download(digest_of("other"), 10) as other,
        download(digest_of("late"), 10) as late,
    ):
        other.fill(lambda found: found.ask(10))
        with pytest.raises(UnreachableError, match="other models have it"):
            late.fill(lambda found: found.ask(1))


@pytest.mark.usefixtures("hub")
def test_contents_that_change_are_told(tmp_path: Path) -> None:
    put("m.onnx", chain(0).SerializeToString())
    known = located(Reference("memory://hub/m.onnx"))
    with fetched(known) as path:
        assert path.read_bytes() == chain(0).SerializeToString()
    put("m.onnx", chain(1).SerializeToString())
    with pytest.raises(ChangedError), fetched(known):
        pass
    with pytest.raises(TooLargeError), fetched(Reference(known.name), 10):
        pass
    path = tmp_path / "m.onnx"
    onnx.save(chain(2), path)
    with pytest.raises(ChangedError), fetched(replace(known, name=str(path))):
        pass
    assert not left()


def test_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp", reason="fsspec opens http:// with aiohttp, which is not installed")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    models = write(tmp_path / "models", 4)
    asked: Counter[str] = Counter()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            super().do_GET()

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(models))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        listing = tmp_path / "list.txt"
        listing.write_text("".join(f"{base}/m{number:03}.onnx\n" for number in range(5)))
        first = run_corpus([str(listing)], tmp_path / "store", COUNTING, jobs=2)
        assert dict(first.statuses) == {"done": 4, "unreachable": 1}
        again = run_corpus([str(listing)], tmp_path / "store", COUNTING, jobs=2)
        assert (again.reused, dict(again.statuses)) == (4, {"unreachable": 1})
        server.shutdown()
    assert {path: times for path, times in asked.items() if "m004" not in path} == {
        f"/m{number:03}.onnx": 1 for number in range(4)
    }
