"""Many runs of single passes in one process of a peer, which starts anew when a pass crashes or hangs.

Importing a peer takes longer than most of its passes. So the process stays: it reads one job a line and answers one
record a line. What a pass does to the process ends with the process; the next pass gets a new one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self, cast

import psutil

from graphopt.peers.base import NOTHING, Peer, environment, last_line
from graphopt.peers.process import memory_for_a_peer, name_of_signal, over_memory, resident_bytes, stop
from graphopt.peers.result import PeerResult, PeerStatus

_POLL_SECONDS = 0.05

SERVER = ("-P", "-m", "graphopt.peers.server")


class PassServer:
    """Runs passes of one peer, one after the other, in one process.

    Use it in a `with` statement; the process ends with the block.

    Args:
        peer: whose passes.
        memory_limit: bytes of resident memory that the process may hold; half of the machine's when None.
    """

    def __init__(self, peer: Peer, *, memory_limit: int | None = None) -> None:
        self.peer = peer
        self.memory_limit = memory_for_a_peer() if memory_limit is None else memory_limit
        self.starts = 0
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one; the next pass starts another."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def run_pass(self, src: Path, dst: Path, pass_name: str, *, timeout: float | None = None) -> PeerResult:
        """Let the peer run one of its passes, or none for `NOTHING`; the result is not loaded to check it.

        Args:
            src: the model.
            dst: where the result goes; what a failed pass leaves there is removed.
            pass_name: one of `peer.passes()`.
            timeout: seconds for the pass, and for the import before the first one.
        """
        if not self.peer.available():
            message = f"{self.peer.name} is not installed (pip install {self.peer.distribution})"
            return self._result("failed", pass_name, message)
        if self._process is None:
            self._process = _Process(self.peer.name, self.memory_limit)
            self.starts += 1
        dst.unlink(missing_ok=True)
        answer = self._process.ask({"src": str(src.absolute()), "dst": str(dst.absolute()), "pass": pass_name}, timeout)
        if answer is None:
            status, message = self._process.obituary()
            self.close()
        else:
            status, message = answer["status"], answer["message"]
        if status != "ok":
            dst.unlink(missing_ok=True)
            return self._result(status, pass_name, message)
        measured = {key: cast(dict[str, Any], answer)[key] for key in ("seconds", "import_seconds")}
        return self._result("ok", pass_name, "", output=dst, files=(dst,), **measured)

    def _result(self, status: PeerStatus, pass_name: str, message: str, **measured: Any) -> PeerResult:
        version = self.peer.version or ""
        return PeerResult(self.peer.name, version, status, pass_name or NOTHING, message=message, **measured)


class _Process:
    """One process of a peer."""

    def __init__(self, peer: str, memory_limit: int) -> None:
        self._memory_limit = memory_limit
        self._folder = tempfile.TemporaryDirectory(prefix="graphopt-peer-")
        self._log = Path(self._folder.name) / "stderr"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, *SERVER, peer], cwd=self._folder.name, env=environment(), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True,
            )  # fmt: skip
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._stopped: tuple[PeerStatus, str] | None = None
        threading.Thread(target=_read, args=(self._child.stdout, self._answers), daemon=True).start()

    def ask(self, job: dict[str, str], timeout: float | None) -> dict[str, Any] | None:
        """The answer to a job, None when the process died or went over a limit."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(job) + "\n")
            self._child.stdin.flush()
        except OSError:
            return None
        line = self._wait(timeout)
        return None if line is None else cast(dict[str, Any], json.loads(line))

    def _wait(self, timeout: float | None) -> str | None:
        """The next line; None when there is none any more, or a limit was reached first."""
        deadline = math.inf if timeout is None else time.perf_counter() + timeout
        watched = psutil.Process(self._child.pid)
        while True:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=min(_POLL_SECONDS, max(deadline - time.perf_counter(), 0.0)))
            if resident_bytes(watched) > self._memory_limit:
                self._stopped = "failed", over_memory(self._memory_limit)
                return None
            if time.perf_counter() >= deadline:
                self._stopped = "timeout", f"stopped after {timeout:g} s"
                return None

    def obituary(self) -> tuple[PeerStatus, str]:
        """How it ended: status and message."""
        if self._stopped is not None:
            return self._stopped
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(5.0)
        code = self._child.returncode
        how = name_of_signal(code or 0) or f"exit code {code}"
        last = last_line(self._log.read_text(errors="replace"))
        return "crashed", how + (f": {last}" if last else "")

    def close(self) -> None:
        """Stop it and remove what it left."""
        stop(self._child)
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                cast(IO[str], pipe).close()
        with contextlib.suppress(OSError):
            self._folder.cleanup()


def _read(stream: IO[str] | None, answers: queue.SimpleQueue[str | None]) -> None:
    """Pass on lines until the stream ends, then None."""
    assert stream is not None
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            answers.put(line)
    answers.put(None)


def serve(peer: Peer, jobs: IO[str], answers: IO[str]) -> None:
    """The other end: work on jobs until there are no more; runs in the peer's process."""
    started = time.perf_counter()
    peer.load()
    import_seconds = time.perf_counter() - started
    for answer in _answers(peer, jobs):
        answers.write(json.dumps({**answer, "import_seconds": import_seconds}) + "\n")
        answers.flush()


def _answers(peer: Peer, jobs: IO[str]) -> Iterator[dict[str, Any]]:
    for line in jobs:
        job = json.loads(line)
        status, message, started = "ok", "", time.perf_counter()
        try:
            if job["pass"]:
                peer.prepare(job["pass"])
            started = time.perf_counter()
            peer.run_one(job["src"], job["dst"], job["pass"])
            if not os.path.exists(job["dst"]):
                status, message = "failed", "wrote no output"
        except Exception as error:  # a peer may raise anything at all: it becomes the message
            status, message = "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        yield {"status": status, "message": message, "seconds": time.perf_counter() - started}
