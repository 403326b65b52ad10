"""The work in the process of a peer; each step is reported at once, so that a crash loses nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.system.child import peak_memory, requests, tell
from graphopt.system.sessions import open_session

if TYPE_CHECKING:
    from graphopt.peers.base import Peer

_MAX_MESSAGE = 300


def list_passes(peer: Peer) -> None:
    """Send the names of the passes that can run alone."""
    try:
        peer.load()
        tell(passes=peer.list_passes(), finished=True, status="ok")
    except Exception as error:  # a peer may raise anything: it becomes the message
        tell(finished=True, status="failed", message=_one_line(error))


def work(peer: Peer, src: str, dst: str, pass_name: str | None, check: bool) -> None:
    """Optimize a file, or run one pass, with a peer, and report whether the output is a model."""
    try:
        tell(stage="import")
        started = time.perf_counter()
        peer.load()
        tell(stage="prepare", import_seconds=time.perf_counter() - started)
        if pass_name:
            peer.prepare(pass_name)
        tell(stage="work")
        seconds = _run(peer, src, dst, pass_name)
        tell(stage="check", seconds=seconds, peak_memory_bytes=peak_memory())
        message = "" if is_file(Path(dst)) else "wrote no output"
        objection = _objection(src, dst) if check and not message else None
        status = "failed" if message else "invalid" if objection else "ok"
        tell(finished=True, status=status, message=objection or message)
    except Exception as error:
        tell(finished=True, status="failed", message=_one_line(error), peak_memory_bytes=peak_memory())


def serve(peer: Peer) -> None:
    """Run passes until there are no more requests; side effects of a pass stay within the process."""
    started = time.perf_counter()
    peer.load()
    import_seconds = time.perf_counter() - started
    for job in requests():
        try:
            if job["pass"]:
                peer.prepare(job["pass"])
            seconds = _run(peer, job["src"], job["dst"], job["pass"])
            message = "" if is_file(Path(job["dst"])) else "wrote no output"
            tell(status="failed" if message else "ok", message=message, seconds=seconds, import_seconds=import_seconds)
        except Exception as error:
            tell(status="failed", message=_one_line(error))


def _run(peer: Peer, src: str, dst: str, pass_name: str | None) -> float:
    """Do the work; returns the seconds that it took."""
    started = time.perf_counter()
    if pass_name is None:
        peer.optimize(src, dst)
    else:
        peer.run_one(src, dst, pass_name)
    return time.perf_counter() - started


def is_file(path: Path) -> bool:
    """Whether a path is a regular file, not a link, a pipe or a folder."""
    return path.is_file() and not path.is_symlink()


def _objection(src: str, dst: str) -> str | None:
    """Why the output is not a usable model; None if it is: onnxruntime must load it, if it loads the input."""
    error = _load_error(dst)
    if error is None:
        return None
    if _load_error(src) is None:
        return error
    import onnx

    try:
        onnx.checker.check_model(dst)
    except Exception as complaint:  # the checker raises several unrelated types
        return _one_line(complaint)
    return None


def _load_error(path: str) -> str | None:
    try:
        open_session(path)
    except Exception as error:  # a native library's exceptions share no base class
        return _one_line(error)
    return None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:_MAX_MESSAGE]
