"""Many runs of single passes in one process of a peer, which is restarted when a pass crashes or hangs.

Importing a peer takes longer than most of its passes. So the process is kept, and runs one pass after another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from graphopt.peers.base import Peer, judged, limits_for, status_of
from graphopt.peers.result import PeerResult, PeerStatus
from graphopt.peers.worker import serve
from graphopt.system.files import remove
from graphopt.system.processes import GARBAGE, Child, memory_for_a_child


class PassServer:
    """Runs passes of one peer, one after another, in one process.

    Use it in a `with` statement; the process ends with the block.

    Args:
        peer: the peer.
        memory_limit: bytes of resident memory that the process may hold; half of the machine's if None.
    """

    def __init__(self, peer: Peer, *, memory_limit: int | None = None) -> None:
        self.peer = peer
        self.memory_limit = memory_for_a_child() if memory_limit is None else memory_limit
        self.starts = 0
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one; the next pass starts a new one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def run_pass(self, src: Path, dst: Path, pass_name: str, *, timeout: float | None = None) -> PeerResult:
        """Run one of the peer's passes, or none for `NOTHING`; the result is not loaded to check it.

        Args:
            src: the model.
            dst: the output file; it is removed if the pass fails.
            pass_name: one of `peer.passes()`.
            timeout: seconds for the pass, and for the import before the first one.
        """
        return self._run(src, dst, pass_name, timeout)

    def optimize(self, src: Path, dst: Path, *, timeout: float | None = None) -> PeerResult:
        """Optimize a file with the peer's default settings; arguments as for `run_pass`."""
        return self._run(src, dst, None, timeout)

    def _run(self, src: Path, dst: Path, pass_name: str | None, timeout: float | None) -> PeerResult:
        if not self.peer.available():
            return self._result("failed", pass_name, self.peer.absent)
        limits = limits_for(dst.parent, timeout, self.memory_limit)
        remove(dst)
        if self._child is None:
            self._child = Child(serve, self.peer, limits=limits, places=[dst.parent], foreign=True)
            self.starts += 1
        self._child.restrict(limits)
        answer = self._child.ask(src=str(src.absolute()), dst=str(dst.absolute()), **{"pass": pass_name})
        ending = self._child.ending
        if ending is None:
            status, message, measured = judged(answer or {})
            if message == GARBAGE:
                self.close()
        else:
            status, message, measured = status_of(ending), ending.with_last, {}
            self.close()
        if status != "ok":
            remove(dst)
            return self._result(status, pass_name, message)
        return self._result("ok", pass_name, "", output=dst, files=(dst,), **measured)

    def _result(self, status: PeerStatus, pass_name: str | None, message: str, **measured: Any) -> PeerResult:
        version = self.peer.version or ""
        return PeerResult(self.peer.name, version, status, pass_name, message=message, **measured)
