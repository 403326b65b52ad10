"""Running a command under a time limit and a memory limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import psutil

Cause = Literal["exited", "timeout", "memory"]
_POLL_SECONDS = 0.02
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_ROOM_FOR_CHECK = 120.0  # seconds for judging the output, once the work itself is done


@lru_cache(maxsize=1)
def memory_for_a_peer() -> int:
    """Bytes that one process of a peer may hold where nothing else is said.

    Half of what this machine or its container has, so that a runaway peer is stopped before anything else is.
    """
    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    return int(total // 2)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a supervised process came to its end.

    Attributes:
        cause: `exited` by itself, or stopped for `timeout` or `memory`.
        returncode: Its exit code; negative for a signal.
        peak_memory_bytes: Largest resident memory seen, the process's children included.
        seconds: Wall time.
    """

    cause: Cause
    returncode: int
    peak_memory_bytes: int
    seconds: float

    @property
    def signal_name(self) -> str | None:
        """The signal that ended the process, if one did."""
        return name_of_signal(self.returncode)


def name_of_signal(returncode: int) -> str | None:
    """The signal that ended a process, None when its exit code says that none did."""
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def supervise(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    timeout: float | None = None,
    memory_limit: int | None = None,
    work_done: Path | None = None,
) -> Ending:
    """Run a command in `folder` until it ends or goes over a limit; its output goes to `stdout` and `stderr` there.

    Memory is what is resident, not the address space: onnxruntime reserves far more of that than it uses.

    Args:
        command: What to run.
        folder: Working directory.
        environment: Environment variables.
        timeout: Seconds of wall time.
        memory_limit: Bytes of resident memory, of the process and its children.
        work_done: A file whose existence says that the limits have been kept and no longer count.
    """
    started = time.perf_counter()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        child = subprocess.Popen(
            list(command), cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
    try:
        cause, peak = _watch(child, timeout, memory_limit, work_done)
    finally:
        stop(child)
    return Ending(cause, child.returncode, peak, time.perf_counter() - started)


def _watch(
    child: subprocess.Popen[bytes], timeout: float | None, memory_limit: int | None, work_done: Path | None
) -> tuple[Cause, int]:
    """Wait until the process ends by itself or goes over a limit; why it ended, and the most memory seen."""
    deadline = None if timeout is None else time.perf_counter() + timeout
    watched, peak = psutil.Process(child.pid), 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_POLL_SECONDS)
            return "exited", peak
        if work_done is not None and work_done.exists():
            deadline, memory_limit, work_done = time.perf_counter() + _ROOM_FOR_CHECK, None, None
        resident = resident_bytes(watched)
        peak = max(peak, resident)
        if memory_limit is not None and resident > memory_limit:
            return "memory", peak
        if deadline is not None and time.perf_counter() > deadline:
            return "timeout", peak


def resident_bytes(process: psutil.Process) -> int:
    """Memory of a process and its children; 0 when it has ended."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    return total


def over_memory(limit: int) -> str:
    """What is said of a process that was stopped for its memory."""
    return f"stopped: over the memory limit of {limit / 2**20:.0f} MiB"


def stop(child: subprocess.Popen[Any]) -> None:
    """Kill the process and whatever it started, which share a session of their own."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
    child.wait()
