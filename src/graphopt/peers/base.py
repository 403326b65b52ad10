"""What adapters have in common: the parent's side, which never imports a peer, and the worker's, which does."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from graphopt.errors import UsageError
from graphopt.peers.process import Ending, over_memory, supervise
from graphopt.peers.result import PeerResult, PeerStatus

JOB, RECORD, DONE = "job.json", "record.json", "work-done"
NOTHING = ""
"""As the name of a pass: load and save with every pass off, to tell what a pass did from what the tool does."""

_LIST_TIMEOUT = 120.0
_MAX_MESSAGE = 300
_NOISE = ("warning", "note:", "  ")


class Peer(ABC):
    """One optimizer, run in a process of its own.

    Attributes:
        name: How graphopt calls it.
        distribution: The Python distribution that it comes in.
        counterparts: Its pass -> the graphopt pass that does the same.
    """

    name: ClassVar[str]
    distribution: ClassVar[str]
    counterparts: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self._passes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"<peer {self.name} {self.version or 'not installed'}>"

    # -- in the caller's process

    @property
    def version(self) -> str | None:
        """The installed version; None when it is not installed."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def available(self) -> bool:
        """True when the peer is installed."""
        return self.version is not None and importlib.util.find_spec(self.distribution) is not None

    def passes(self) -> tuple[str, ...]:
        """The names that `run_pass` accepts, in the peer's own order; asked of the peer once, in a subprocess.

        Raises:
            UsageError: The peer is not installed, or cannot list its passes.
        """
        if self._passes is None:
            if not self.available():
                raise UsageError(f"{self.name} is not installed (pip install {self.distribution})")
            result, record = self._launch({"action": "list"}, _LIST_TIMEOUT, None)
            if "passes" not in record:
                raise UsageError(f"{self.name} cannot list its passes: {result.message}")
            self._passes = tuple(record["passes"])
        return self._passes

    def optimize_file(
        self,
        src: str | os.PathLike[str],
        dst: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        memory_limit: int | None = None,
        check: bool = True,
    ) -> PeerResult:
        """Let the peer optimize a file with its usual settings.

        Args:
            src: The model; external data is found beside it.
            dst: Where the result goes. What was there is replaced when the peer succeeds, and left alone when not.
            timeout: Seconds for import and work.
            memory_limit: Bytes of resident memory.
            check: Load the result in onnxruntime afterwards; a result that does not load is `invalid`.
        """
        return self._work(Path(src), Path(dst), None, timeout=timeout, memory_limit=memory_limit, check=check)

    def run_pass(
        self,
        src: str | os.PathLike[str],
        dst: str | os.PathLike[str],
        pass_name: str,
        *,
        timeout: float | None = None,
        memory_limit: int | None = None,
        check: bool = True,
    ) -> PeerResult:
        """Let the peer run exactly one of its passes, or none of them for `NOTHING`; arguments as `optimize_file`.

        Raises:
            UsageError: The peer has no such pass.
        """
        if pass_name != NOTHING and self.available() and pass_name not in self.passes():
            near = difflib.get_close_matches(pass_name, self.passes(), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; it has {len(self.passes())} passes"
            raise UsageError(f"{self.name} has no pass {pass_name!r}{hint}")
        return self._work(Path(src), Path(dst), pass_name, timeout=timeout, memory_limit=memory_limit, check=check)

    def _work(
        self,
        src: Path,
        dst: Path,
        pass_name: str | None,
        *,
        timeout: float | None,
        memory_limit: int | None,
        check: bool,
    ) -> PeerResult:
        src, dst = src.absolute(), dst.absolute()
        if src == dst or (dst.exists() and src.samefile(dst)):
            raise UsageError(f"the output must be another file than the input: {dst}")
        if not self.available():
            return self._result("failed", pass_name, f"{self.name} is not installed (pip install {self.distribution})")
        if not dst.parent.is_dir():
            raise UsageError(f"the folder of the output does not exist: {dst.parent}")
        # A folder beside the target: peers name their data files as they like, and a failure must leave no trace.
        with tempfile.TemporaryDirectory(prefix=".graphopt-", dir=dst.parent) as staging:
            made = str(Path(staging) / dst.name)
            job = {"action": "work", "src": str(src), "dst": made, "pass": pass_name, "check": check}
            result, _ = self._launch(job, timeout, memory_limit)
            if not result.ok:
                return result
            return dataclasses.replace(result, output=dst, files=_put_in_place(Path(staging), dst))

    def _launch(
        self, job: dict[str, Any], timeout: float | None, memory_limit: int | None
    ) -> tuple[PeerResult, dict[str, Any]]:
        """Run the worker on a job; the result and whatever the worker recorded."""
        with tempfile.TemporaryDirectory(prefix="graphopt-peer-") as name:
            folder = Path(name)
            (folder / JOB).write_text(json.dumps({"peer": self.name, **job}))
            ending = supervise(
                [sys.executable, *COMMAND, str(folder)], folder, environment(),
                timeout=timeout, memory_limit=memory_limit, work_done=folder / DONE,
            )  # fmt: skip
            record: dict[str, Any] = {}
            if (folder / RECORD).exists():
                record = json.loads((folder / RECORD).read_text())
            status, message = _judge(ending, record, folder, timeout, memory_limit)
        result = self._result(
            status,
            job.get("pass"),
            message,
            seconds=record.get("seconds"),
            import_seconds=record.get("import_seconds"),
            peak_memory_bytes=record.get("peak_memory_bytes") or ending.peak_memory_bytes or None,
        )
        return result, record

    def _result(self, status: PeerStatus, pass_name: str | None, message: str, **measured: Any) -> PeerResult:
        return PeerResult(self.name, self.version or "", status, pass_name, message=message, **measured)

    # -- in the worker's process

    @abstractmethod
    def load(self) -> None:
        """Import the peer."""

    @abstractmethod
    def optimize(self, src: str, dst: str) -> None:
        """Optimize a file with the peer's usual settings."""

    def list_passes(self) -> list[str]:
        """The names of the passes that can run alone."""
        return []

    def prepare(self, pass_name: str) -> None:  # noqa: B027  # most peers need nothing before the clock starts
        """Find out what is needed to run one pass, before the clock starts."""

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass, or none for `NOTHING`."""
        raise UsageError(f"{self.name} cannot run {pass_name or 'no pass'} alone")


COMMAND = ("-P", "-m", "graphopt.peers.worker")


def _put_in_place(staging: Path, dst: Path) -> tuple[Path, ...]:
    """Move an output and its data files to where they belong, the model last; what they replace is removed."""
    made = sorted(staging.iterdir(), key=lambda path: path.name == dst.name)
    data_file(dst).unlink(missing_ok=True)
    for path in made:
        path.replace(dst.parent / path.name)
    return tuple(dst.parent / path.name for path in reversed(made))


def data_file(dst: Path) -> Path:
    """Where an output's external data goes."""
    return dst.with_name(dst.name + ".data")


def environment() -> dict[str, str]:
    """What a peer's process inherits: this package on the path, no warnings."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}


def _judge(
    ending: Ending, record: Mapping[str, Any], folder: Path, timeout: float | None, memory_limit: int | None
) -> tuple[PeerStatus, str]:
    """Status and message from how the worker ended and what it recorded before."""
    if record.get("finished"):
        return cast(PeerStatus, record["status"]), record.get("message", "")
    stage = record.get("stage", "start")
    if stage == "check":
        how = ending.signal_name or ending.cause
        return "invalid", f"loading the output ended with {how}"
    if ending.cause == "timeout":
        return "timeout", f"stopped after {timeout:g} s ({stage})"
    if ending.cause == "memory":
        return "failed", f"{over_memory(memory_limit or 0)} ({stage})"
    last = last_line((folder / "stderr").read_text(errors="replace"))
    how = ending.signal_name or f"exit code {ending.returncode}"
    return "crashed", f"{how} ({stage})" + (f": {last}" if last else "")


def last_line(text: str) -> str:
    """The last line that is not a warning, shortened: where a native library says why it gave up."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lower().startswith(_NOISE)]
    return lines[-1][:_MAX_MESSAGE] if lines else ""
