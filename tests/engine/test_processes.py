"""Children: whatever goes wrong in one is told in words, and nothing that it started is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import psutil
import pytest

from graphopt.peers.serving import PassServer
from graphopt.system import files, processes
from graphopt.system.processes import Child, ChildError, Limits, call
from tests.engine import misbehaving
from tests.engine.misbehaving import Misbehaving

ROOT = Path(__file__).parents[2]
MODEL = '<ir_version: 9, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { y = Relu(x) }'


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Children find this folder's modules; what they leave in the folder for such things is seen."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GRAPHOPT_CHILD", f"/{tmp_path}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def alive(path: Path) -> bool:
    """Whether the process that left its number runs."""
    try:
        return psutil.Process(int(path.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def from_here() -> list[str]:
    """Every process on the machine that this test's children left."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GRAPHOPT_CHILD", "").startswith(os.environ["GRAPHOPT_CHILD"] + "/"):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


# -- a child


def test_a_result_an_error_and_what_is_told() -> None:
    assert call(abs, -3) == 3
    with pytest.raises(ChildError, match="bad operand") as caught:
        call(abs, "x")
    assert caught.value.status == "failed"
    with pytest.raises(ChildError, match=r"^exit code 0$"):
        call(os._exit, 0)


@pytest.mark.parametrize(
    ("function", "args", "limits", "ending"),
    [
        (os.abort, (), Limits(), ("crashed", r"^crashed \(SIGABRT\)$")),
        (time.sleep, (60,), Limits(0.5), ("timeout", "^stopped after 0.5 s$")),
        (misbehaving.chatter, (), Limits(1.0), ("timeout", "^stopped after 1 s$")),
        (os.kill, (0, signal.SIGSTOP), Limits(), ("crashed", r"^crashed \(SIGSTOP\)$")),
        (misbehaving.end_streams, (), Limits(1.0), ("timeout", "^stopped after 1 s$")),
        (misbehaving.eat, (), Limits(60, 200 << 20), ("memory", "^stopped: over the memory limit of 200 MiB$")),
        (misbehaving.spoil_result, (), Limits(), ("failed", "^left no readable result")),
        (misbehaving.say, ("no JSON",), Limits(), ("failed", "^answered with garbage$")),
        (misbehaving.say, ("[1]",), Limits(), ("failed", "^answered with garbage$")),
        (misbehaving.say, ("[" * 100_000,), Limits(), ("failed", "^answered with garbage$")),
        (misbehaving.say, ("x" * (8 << 20),), Limits(), ("failed", "^answered with garbage$")),
        (misbehaving.kill_guard, (), Limits(20.0), ("crashed", r"^crashed \(SIGKILL\)$")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_bad_end_is_told_and_complete(tmp_path, function, args, limits, ending) -> None:
    status, words = ending
    with pytest.raises(ChildError, match=words) as caught:
        call(function, *args, limits=limits)
    assert caught.value.status == status
    assert from_here() == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_disk_is_not_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    arguments = (misbehaving.fill, str(tmp_path / "out"))
    with pytest.raises(ChildError, match="File too large"):
        call(*arguments, 1, 32 << 20, limits=Limits(disk=8 << 20))
    with Child(*arguments, 16, 2 << 20, limits=Limits(60.0, disk=8 << 20), places=[tmp_path / "out"]) as child:
        assert list(child.messages()) == []
        assert child.ending is not None
        assert (child.ending.cause, str(child.ending)) == ("disk", "stopped: over the disk limit of 8 MiB")


@pytest.mark.parametrize("stream", [1, 2])
def test_gigabytes_that_are_printed_cost_nothing(stream: int) -> None:
    before = psutil.Process().memory_info().rss
    assert call(misbehaving.flood, stream, 2.0) is None
    assert psutil.Process().memory_info().rss - before < 50 << 20


@pytest.mark.parametrize("net", ["guard", "mark"])
def test_what_leaves_its_family_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, net: str) -> None:
    """By the guard; and where a system lets orphans go, by the mark that they carry."""
    if net == "mark":
        script = tmp_path / "guard.py"
        script.write_text(processes._GUARD.read_text().replace('!= "linux"', "!= 'nowhere'"))
        monkeypatch.setattr(processes, "_GUARD", script)
        monkeypatch.setattr(processes, "_ALL_FOUND", False)
    with pytest.raises(ChildError, match="stopped after 2 s"):
        call(misbehaving.family, str(tmp_path), limits=Limits(2.0))
    assert not alive(tmp_path / "self")
    assert not alive(tmp_path / "daemon")
    assert from_here() == []


def test_what_is_left_after_a_result_is_ended_too(tmp_path: Path) -> None:
    assert call(misbehaving.orphans, str(tmp_path)) == 7
    assert not alive(tmp_path / "daemon")


ENDS = {"int": [signal.SIGINT], "twice": [signal.SIGINT] * 2, "term": [signal.SIGTERM], "hup": [signal.SIGHUP],
        "kill": [signal.SIGKILL]}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("threads", [0, 2])
def test_all_ends_with_graphopt(tmp_path: Path, end: str, threads: int) -> None:
    """However graphopt ends, from its main thread or with threads that wait for children."""
    code = (
        "import sys, threading; from graphopt.system.processes import call; from tests.engine.misbehaving import family\n"
        f"work = lambda: call(family, {str(tmp_path)!r})\n"
        f"threads = [threading.Thread(target=work, daemon=True) for _ in range({threads})]\n"
        "[t.start() for t in threads]\n"
        "work() if not threads else threading.Event().wait(60)\n"
    )
    graphopt = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=misbehaving.heed_signals,
    )
    misbehaving.wait_for(str(tmp_path / "self"), str(tmp_path / "daemon"))
    for number in ENDS[end]:
        graphopt.send_signal(number)
        time.sleep(0.02)
    graphopt.wait(30)
    until = time.monotonic() + 10
    while from_here() and time.monotonic() < until:
        time.sleep(0.02)
    assert from_here() == []


# -- peers


WAYS = {
    "garbage": ("failed", "answered with garbage"),
    "truncated": ("failed", "answered with garbage"),
    "huge": ("failed", "answered with garbage"),
    "deep": ("failed", "answered with garbage"),
    "lies": ("failed", "answered with garbage"),
    "lies alone": ("failed", "answered with garbage"),
    "family": ("timeout", "stopped after 3 s"),
    "stop": ("crashed", "SIGSTOP"),
    "streams": ("timeout", "stopped after 3 s"),
    "eat": ("failed", "over the memory limit of 300 MiB"),
    "leaves": ("crashed", "exit code 0"),
    "pipe": ("failed", "wrote no output"),
    "link": ("failed", "wrote no output"),
    "device": ("failed", "wrote no output"),
    "folder": ("failed", "wrote no output"),
    "exits": ("crashed", "exit code 1"),
    "interrupts": ("crashed", ""),
    "stderr": ("ok", ""),
    "stdout": ("ok", ""),
    "cwd": ("ok", ""),
    "good": ("ok", ""),
}
ONLY_WHOLE = {"beside": "is not a file", "thief": "would replace in.onnx"}


@pytest.mark.parametrize("way", [*WAYS, *ONLY_WHOLE])
def test_a_peer_that_misbehaves_is_a_result(source: Path, tmp_path: Path, way: str) -> None:
    before = source.read_bytes()
    status, words = WAYS.get(way) or ("failed", ONLY_WHOLE[way])
    target = tmp_path / "out.onnx"
    result = Misbehaving(way, str(tmp_path)).optimize_file(
        source, target, timeout=3.0 if status == "timeout" else 60.0, memory_limit=300 << 20
    )
    assert (result.status, result.ok) == (status, status == "ok"), result.message
    assert words in result.message
    assert len(result.message) < 400
    assert "\n" not in result.message
    assert target.exists() == result.ok
    assert source.read_bytes() == before
    assert from_here() == []
    left = {path.name for path in tmp_path.iterdir()} - {"tmp", "in.onnx", "out.onnx", "self", "daemon"}
    assert left == set(), "nothing is left behind"
    assert list((tmp_path / "tmp").iterdir()) == []


SERVED = ("garbage", "huge", "lies alone", "family", "stop", "streams", "leaves", "pipe", "exits", "stdout", "cwd")


@pytest.mark.parametrize("way", SERVED)
def test_a_served_pass_that_misbehaves_costs_only_itself(source: Path, tmp_path: Path, way: str) -> None:
    status, words = WAYS[way]
    target = tmp_path / "out.onnx"
    with PassServer(Misbehaving(way, str(tmp_path)), memory_limit=300 << 20) as server:
        assert server.run_pass(source, target, "good", timeout=60).ok
        result = server.run_pass(source, target, way, timeout=3.0 if status == "timeout" else 60.0)
        assert result.status == status, result.message
        assert words.split(" (")[0] in result.message
        assert target.exists() == result.ok
        assert server.run_pass(source, target, "good", timeout=60).ok
    assert from_here() == []


def test_a_disk_that_a_peer_fills(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphopt.peers import base

    monkeypatch.setattr(base.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 16 << 20}))
    result = Misbehaving("fill").optimize_file(source, tmp_path / "out.onnx", timeout=60)
    assert (result.status, result.message) == ("failed", "stopped: over the disk limit of 8 MiB (work)")


def test_a_list_of_passes_that_is_none() -> None:
    from graphopt.errors import UsageError

    with pytest.raises(UsageError, match="cannot list its passes: answered with garbage"):
        Misbehaving("garbage list").passes()


def test_a_folder_for_a_while_is_no_obstacle_to_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes the folder holds a lock on it; what its children write there must not wait for that."""
    monkeypatch.setattr(files, "_LOCK_SECONDS", 0.0)
    with files.scratch() as folder, files.alone(folder) as sure:
        assert sure
    with files.scratch() as folder:
        (folder / "inner").mkdir()
        with files.alone(folder / "inner") as sure, files.alone(folder / "inner") as twice:
            assert sure
            assert not twice
