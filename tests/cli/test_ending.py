"""A command that is told to end: what it started ends, and what it had under way goes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from graphopt.system.files import is_temporary
from tests.engine.misbehaving import heed_signals

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_command_ends_with_all_that_it_started(model_file: Path, tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    audit = subprocess.Popen(
        [sys.executable, "-m", "graphopt", "audit", str(model_file), "--budget", "60", "--level", "basic"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(place)}, preexec_fn=heed_signals,
    )  # fmt: skip
    seen: list[psutil.Process] = []
    until = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < until:
        seen = psutil.Process(audit.pid).children(recursive=True)
        time.sleep(0.05)
    audit.send_signal(number)
    _, errors = audit.communicate(timeout=60)
    assert audit.returncode == CODES[number]
    assert errors == "graphopt: interrupted\n"
    _, left = psutil.wait_procs(seen, timeout=10)
    assert left == []
    assert not [path for path in place.iterdir() if is_temporary(path.name)]


_INTERRUPTED_EARLY = """
import sys
from graphopt.cli import main

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "graphopt.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
main()
"""


def test_an_interrupt_while_the_command_is_imported_is_no_traceback() -> None:
    command = [sys.executable, "-c", _INTERRUPTED_EARLY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "graphopt: interrupted\n")


@pytest.mark.parametrize("words", [("verify",), ("verify", "--json"), ("diff",)], ids=str)
def test_a_report_that_nobody_reads_is_no_result(model_file: Path, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "graphopt", *words, str(model_file), str(model_file)],
        stdout=writer, stderr=subprocess.PIPE, timeout=120, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without such a device")
def test_output_without_room_is_an_error(model_file: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "graphopt", "inspect", "--json", str(model_file)],
            stdout=full, stderr=subprocess.PIPE, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("inspect MODEL >&-", 3),
        ("inspect MODEL 2>&-", 0),
        ("inspect MODEL -q <&- >&- 2>&-", 0),
        ("optimize MODEL - >&-", 3),
        ("optimize - OUT <&-", 3),
        ("inspect OUT 2>&-", 3),
    ],
)
def test_closed_streams(model_file: Path, tmp_path: Path, words: str, code: int) -> None:
    words = words.replace("MODEL", shlex.quote(str(model_file))).replace("OUT", shlex.quote(str(tmp_path / "out.onnx")))
    done = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m graphopt {words}"],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert b"a bug" not in done.stderr
