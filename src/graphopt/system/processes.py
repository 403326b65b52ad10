"""Child processes for work that may crash, hang, exhaust memory or disk, or never end.

Audits, comparisons and other optimizers run in children. A child is a function in a process of its own, under limits,
which answers in lines of JSON. Any failure becomes an `Ending` in words, and no process that the child started outlives
the child, or this process (`graphopt.system.guard`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from graphopt.errors import GraphoptError
from graphopt.records import dataclass
from graphopt.system.child import FINISHED, JOB, RESULT
from graphopt.system.extras import require
from graphopt.system.files import scratch

Cause = Literal["returned", "died", "timeout", "memory", "disk", "garbage"]
GARBAGE = "answered with garbage"
_POLL_SECONDS = 0.05
_DISK_POLL_SECONDS = 0.5
_IDLE_SECONDS = 1.0
_END_SECONDS = 15.0
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_LONGEST_ANSWER = 1 << 20
_TAIL = 1 << 13
_LONGEST_LINE = 300
_NOISE = ("warning", "note:", "  ")
_MARK = "GRAPHOPT_CHILD"
_ALL_FOUND = sys.platform == "linux"  # elsewhere orphans may escape the guard
_GUARD = Path(__file__).with_name("guard.py")


@lru_cache(maxsize=1)
def memory_for_a_child() -> int:
    """The default memory limit of a process in bytes.

    Half the memory of this machine or its container, so that a runaway process is stopped before any other.
    """
    psutil = require("psutil")

    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_LIMIT.read_text(encoding="utf-8")))
    return int(total // 2)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for a process and all its descendants together; None for no limit.

    Attributes:
        seconds: time.
        memory: bytes of resident memory; by default half of what there is. (The runtime reserves far more address
            space than it uses.)
        disk: bytes of each file, and of all files together in its folders.
    """

    seconds: float | None = None
    memory: int | None = field(default_factory=memory_for_a_child)
    disk: int | None = None


NO_LIMITS = Limits(None, None, None)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended.

    Attributes:
        cause: its function `returned`, its process `died`, or it was stopped: for time, memory or disk, or because its
            answer was garbage.
        how: in words: `SIGSEGV`, `exit code 3`, `stopped after 2 s`, …
        crashed: whether a signal other than ours ended the process.
        last: the last line of its standard error that is not a warning: native code states errors there.
        peak: the largest resident bytes measured, 0 if they were not measured.
    """

    cause: Cause
    how: str
    crashed: bool
    last: str
    peak: int

    @property
    def with_last(self) -> str:
        """How it ended, and for a process that died its last line."""
        return f"{self.how}: {self.last}" if self.cause == "died" and self.last else self.how

    def __str__(self) -> str:
        if self.crashed:
            return f"crashed ({self.how})"
        return self.last or self.how if self.cause == "died" else self.how


class ChildError(GraphoptError):
    """A child process gave no result; the message states how it ended.

    Attributes:
        status: `crashed`, `timeout`, `memory`, or `failed` for everything else.
    """

    def __init__(self, message: str, status: Literal["crashed", "timeout", "memory", "failed"] = "failed") -> None:
        super().__init__(message)
        self.status = status


class Child:
    """A function in a process of its own; used in a `with` statement, at whose end the process ends.

    Args:
        function: a module-level function; arguments and result must be picklable. It calls `tell` from
            `graphopt.system.child`, and may iterate over `requests`.
        *args: its arguments.
        limits: its limits.
        places: folders whose files count for the limit on disk, besides the child's own.
        foreign: whether third-party code runs there; its temporary files are then removed with the child, and its
            warnings suppressed.
    """

    def __init__(
        self, function: Callable[..., Any], *args: Any, limits: Limits = NO_LIMITS, places: Iterable[Path] = (),
        foreign: bool = False,
    ) -> None:  # fmt: skip
        self.ending: Ending | None = None
        self._peak, self._looked = 0, [-math.inf, -math.inf]
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(scratch())
        self._places = (self._folder, *places)
        self._mark = f"{os.environ.get(_MARK, '')}/{secrets.token_hex(8)}"
        self.restrict(limits)
        try:
            (self._folder / JOB).write_bytes(pickle.dumps((function.__module__, function.__qualname__, args)))
            command = [sys.executable, "-P", "-m", "graphopt.system.child", str(self._folder)]
            self._start(command, {**_environment(self._folder if foreign else None), _MARK: self._mark})
        except BaseException:
            self._stack.close()
            raise
        self._answers: queue.Queue[str | None] = queue.Queue(1000)
        self._silent = False
        self._tail = bytearray()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._keep_tail)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests and messages

    def restrict(self, limits: Limits) -> None:
        """Set new limits; time starts now."""
        self._limits = limits
        self._deadline = math.inf if limits.seconds is None else time.monotonic() + limits.seconds

    def ask(self, **request: Any) -> dict[str, Any] | None:
        """Send a request to the function; returns its next message, None if it ended instead."""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]  # it is a pipe
            self._process.stdin.flush()  # type: ignore[union-attr]  # it is a pipe
        return self.hear()

    def messages(self) -> Iterator[dict[str, Any]]:
        """The function's messages, until it returns or its process ends; `ending` then states how."""
        while (message := self.hear()) is not None:
            yield message

    def hear(self) -> dict[str, Any] | None:
        """The function's next message; None if it returned or its process ended, as `ending` states."""
        if self.ending is not None:
            return None
        line = self._next()
        if line == FINISHED:
            self._end("returned", "returned")
        if line is None or self.ending is not None:
            return None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._end("garbage", GARBAGE)
            return None
        return message

    def result(self) -> Any:
        """The function's result.

        Raises:
            GraphoptError: the function raised it.
            ChildError: it gave no result.
        """
        while self.hear() is not None:
            pass
        ending = self.ending
        assert ending is not None
        if ending.cause != "returned":
            known: dict[Cause, Literal["timeout", "memory"]] = {"timeout": "timeout", "memory": "memory"}
            raise ChildError(str(ending), "crashed" if ending.crashed else known.get(ending.cause, "failed"))
        try:
            outcome = pickle.loads((self._folder / RESULT).read_bytes())
        except Exception as error:  # garbage can raise anything
            raise ChildError(f"left no readable result ({type(error).__name__})") from None
        if isinstance(outcome, GraphoptError):
            raise outcome
        return outcome

    # -- its process

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        self._channel: socket.socket | None = None
        theirs: socket.socket | None = None
        passed: tuple[int, ...] = ()
        if os.name == "posix":
            self._channel, theirs = socket.socketpair()
            limit = -1 if self._limits.disk is None else self._limits.disk
            passed = (theirs.fileno(),)
            command = [sys.executable, "-I", "-S", str(_GUARD), str(passed[0]), str(limit), *command]
        try:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", pass_fds=passed,
                start_new_session=True,
            )  # fmt: skip
        finally:
            if theirs is not None:
                theirs.close()

    def _read(self) -> None:
        """Queue lines until there are no more, then None; a line that is too long is cut, and becomes garbage."""
        line: str | None = ""
        while line is not None:
            try:
                line = self._process.stdout.readline(_LONGEST_ANSWER) or None  # type: ignore[union-attr]  # it is a pipe
            except (OSError, ValueError):
                line = None
            while self.ending is None:
                with contextlib.suppress(queue.Full):
                    self._answers.put(line, timeout=_IDLE_SECONDS)
                    break

    def _keep_tail(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while piece := self._process.stderr.buffer.read1(1 << 16):  # type: ignore[union-attr]  # it is a pipe
                self._tail += piece
                del self._tail[:-_TAIL]

    def _next(self) -> str | None:
        """The next line; None if the process ended or was stopped, and `ending` is set."""
        watched = self._limits.memory is not None or self._limits.disk is not None
        while True:
            self._check_limits()
            if self.ending is not None:
                return None
            wait = min(_POLL_SECONDS if watched or self._silent else _IDLE_SECONDS, self._deadline - time.monotonic())
            if self._silent:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(max(wait, 0.0))
                    self._end("died", "")
                continue
            gone = self._process.poll() is not None
            try:
                line = self._answers.get(timeout=max(wait, 0.0))
            except queue.Empty:
                self._silent = gone  # the guard was killed, and an escaped process keeps the output open
                continue
            if line is not None:
                return line.rstrip("\n")
            self._silent = True

    def _check_limits(self) -> None:
        """End the process if it exceeded a limit."""
        now = time.monotonic()
        if now >= self._deadline:
            self._end("timeout", f"stopped after {self._limits.seconds:g} s")
        elif self._limits.memory is not None and now >= self._looked[0] + _POLL_SECONDS:
            self._peak = max(self._peak, resident := self._resident())
            self._looked[0] = now
            if resident > self._limits.memory:
                self._end("memory", f"stopped: over the memory limit of {self._limits.memory / 2**20:.0f} MiB")
        if self.ending is None and self._limits.disk is not None and now >= self._looked[1] + _DISK_POLL_SECONDS:
            self._looked[1] = now
            if sum(map(_size, self._places)) > self._limits.disk:
                self._end("disk", f"stopped: over the disk limit of {self._limits.disk / 2**20:.0f} MiB")

    def _resident(self) -> int:
        """Resident bytes of all processes of this child."""
        psutil = require("psutil")

        total = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            for each in (*(() if self._channel else (process,)), *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += each.memory_info().rss
        return total

    def _end(self, cause: Cause, how: str) -> None:
        """End the process if it has not ended, and record how it ended."""
        code = self._kill()
        crashed = cause == "died" and code < 0
        self.ending = Ending(cause, how or _how(code), crashed, last_line(bytes(self._tail)), self._peak)

    def stop(self) -> None:
        """Kill the process and its descendants, from any thread; a thread that waits for it learns that it died."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)
        else:
            _kill_tree(self._process.pid)

    def _kill(self) -> int:
        """Stop the process and wait until all its descendants have ended; returns its exit code."""
        self.stop()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        told = b""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                told = self._channel.recv(32)
        if not (told and _ALL_FOUND):
            _kill_marked(self._mark)
        return int(told) if told else code

    def close(self) -> None:
        """End the process and its descendants, and remove its files."""
        try:
            if self.ending is None:
                self._end("died", "ended by its caller")
        finally:
            if self._channel is not None:
                self._channel.close()
            for thread in self._threads:
                thread.join(_IDLE_SECONDS)
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                # Closing would block while another process keeps the other end of the pipe open.
                with contextlib.suppress(OSError, ValueError):
                    if not any(thread.is_alive() for thread in self._threads):
                        stream.close()  # type: ignore[union-attr]  # it is a pipe
            self._stack.close()


def call(
    function: Callable[..., Any], *args: Any, limits: Limits = NO_LIMITS,
    heard: Callable[[dict[str, Any]], None] | None = None, among: set[Child] | None = None,
) -> Any:  # fmt: skip
    """Call a module-level function in a process of its own.

    Args:
        function: a function that can be imported; arguments and result must be picklable.
        *args: its arguments.
        limits: its limits.
        heard: called with each message of the function.
        among: contains the child while it runs, so that another thread can stop it.

    Raises:
        GraphoptError: the function raised it.
        ChildError: it raised something else, crashed, or exceeded a limit.
    """
    with Child(function, *args, limits=limits) as child:
        if among is not None:
            among.add(child)
        try:
            for message in child.messages():
                if heard is not None:
                    heard(message)
            return child.result()
        finally:
            if among is not None:
                among.discard(child)


def last_line(text: bytes) -> str:
    """The last line that is not a warning, shortened."""
    lines = text.decode(errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not line.lower().startswith(_NOISE)]
    return told[-1][:_LONGEST_LINE] if told else ""


def _environment(own: Path | None) -> dict[str, str]:
    """Environment variables of a child: it imports this package, and puts temporary files into `own` if given."""
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    private = {} if own is None else {**dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(own)), "PYTHONWARNINGS": "ignore"}
    return {**os.environ, "PYTHONPATH": paths, **private}


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _size(folder: Path) -> int:
    """Bytes on disk of all files below a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(place, name))
                total += getattr(found, "st_blocks", found.st_size // 512) * 512
    return total


def _kill_tree(pid: int) -> None:
    psutil = require("psutil")

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.Error):
                each.kill()


def _kill_marked(mark: str) -> None:
    """Kill escaped descendants: processes with a child's mark in their environment."""
    psutil = require("psutil")

    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_MARK, "").startswith(mark):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=_IDLE_SECONDS)
