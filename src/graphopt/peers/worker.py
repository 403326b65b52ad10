"""The process in which a peer works: `python -m graphopt.peers.worker FOLDER`."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from graphopt.peers import by_name
from graphopt.peers.base import DONE, JOB, NOTHING, RECORD, Peer

_MAX_MESSAGE = 300


class Record:
    """What is known so far, written at every step, so that a crash loses nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data: dict[str, Any] = {}

    def add(self, **facts: Any) -> None:
        """Add facts and write everything."""
        self._data.update(facts)
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._data))
        unfinished.replace(self._path)


def main(folder: Path) -> None:
    """Do the job that lies in the folder and leave a record of it there."""
    no_core_dump()
    job = json.loads((folder / JOB).read_text())
    peer, record = by_name(job["peer"]), Record(folder / RECORD)
    try:
        record.add(stage="import")
        started = time.perf_counter()
        peer.load()
        record.add(stage="prepare", import_seconds=time.perf_counter() - started)
        if job["action"] == "list":
            record.add(passes=peer.list_passes(), finished=True, status="ok")
            return
        _work(peer, job, record, folder)
    except Exception as error:  # a peer may raise anything at all: it becomes the message
        record.add(finished=True, status="failed", message=_one_line(error), peak_memory_bytes=_peak_memory())


def _work(peer: Peer, job: dict[str, Any], record: Record, folder: Path) -> None:
    src, dst, pass_name = job["src"], job["dst"], job["pass"]
    if pass_name is not None and pass_name != NOTHING:
        peer.prepare(pass_name)
    record.add(stage="work")
    started = time.perf_counter()
    if pass_name is None:
        peer.optimize(src, dst)
    else:
        peer.run_one(src, dst, pass_name)
    seconds = time.perf_counter() - started
    record.add(stage="check", seconds=seconds, peak_memory_bytes=_peak_memory())
    (folder / DONE).touch()
    if not Path(dst).exists():
        record.add(finished=True, status="failed", message="wrote no output")
        return
    objection = _objection(src, dst) if job["check"] else None
    record.add(finished=True, status="invalid" if objection else "ok", message=objection or "")


def _objection(src: str, dst: str) -> str | None:
    """Why the output is not a usable model, None when it is: onnxruntime must load it, if it loads the input."""
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
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the exception types of a native library share no base class
        return _one_line(error)
    return None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:_MAX_MESSAGE]


def _peak_memory() -> int | None:
    """Peak resident bytes of this process; what the parent had before it started us does not count."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(ImportError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return None


def no_core_dump() -> None:
    """A peer that crashes leaves no file of its memory behind."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
