"""A guard process between graphopt and a child, run as `python -I -S guard.py CHANNEL FILE_LIMIT COMMAND…`.

All descendants of the child end with it, and all of them end with graphopt, however that ends: the channel, a socket,
closes when graphopt closes it, dies or is killed. On Linux no process escapes, since orphans become children of the
guard, even those in sessions of their own. Elsewhere a process that leaves the session is found by its
environment (`graphopt.system.processes`).

The guard stays small: it imports no package, and keeps neither input nor output of the child open.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # options of Linux's prctl
_SWEEP_SECONDS = 10.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(channel: int, file_limit: int, command: list[str]) -> None:
    """Run the command; write its exit code to the channel once all its processes have ended."""
    graphopt = os.getppid()
    prctl = _prctl()
    prctl(_SUBREAPER, 1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    process = os.fork()
    if not process:
        os.close(channel)
        prctl(_DEATH_SIGNAL, signal.SIGKILL)
        _become(command, file_limit)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    while (code := _ended(process)) is None:
        ready = select.select([channel, woken], [], [], 1.0)[0]
        if channel in ready or os.getppid() != graphopt:
            break
        if woken in ready:
            os.read(woken, 512)
    _sweep(process)
    with suppress(OSError):
        os.write(channel, b"%d" % (-signal.SIGKILL if code is None else code))


def _prctl() -> Any:
    """The Linux function `prctl`; on other systems a function that does nothing."""
    if sys.platform != "linux":
        return lambda *_: None
    import ctypes

    function = ctypes.CDLL(None).prctl
    return lambda option, value: function(option, ctypes.c_ulong(value), 0, 0, 0)


def _become(command: list[str], file_limit: int) -> None:
    """In the forked process: set the limits and run the command; does not return."""
    try:
        import resource

        os.setsid()
        for number in (*_IGNORED, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if file_limit >= 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
        with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write("1000")  # if the machine runs out of memory, this process is killed first
        os.execvp(command[0], command)
    except BaseException as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _ended(process: int) -> int | None:
    """The exit code of the process, negative for the signal that ended or stopped it; None while it runs.

    A process that stopped itself would never be continued, so that counts as an end.
    """
    with suppress(ChildProcessError):
        while True:
            found, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not found:
                break
            if found == process:
                return -os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
    return None


def _sweep(process: int) -> None:
    """Kill all descendants of the process, repeatedly until none is left."""
    until = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < until:
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        for each in _descendants():
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _descendants() -> Iterator[int]:
    """Every descendant of this process, if the system lists processes in `/proc`."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    todo = [os.getpid()]
    for each in todo:
        todo += children.get(each, ())
        yield from children.get(each, ())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
