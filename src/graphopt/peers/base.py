"""The base of adapters: the parent's side, which never imports a peer, and the worker's side, which does."""

from __future__ import annotations

import difflib
import importlib.util
import math
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from graphopt.errors import UsageError
from graphopt.peers import worker
from graphopt.peers.result import PeerResult, PeerStatus
from graphopt.system.extras import version_of
from graphopt.system.files import scratch
from graphopt.system.processes import GARBAGE, Child, Ending, Limits

NOTHING = ""
"""As the name of a pass: load and save with every pass off, to separate a pass from the tool's other changes."""

_LIST_SECONDS = 120.0
_CHECK_SECONDS = 120.0  # for checking the output, after the work itself
_MAX_MESSAGE = 300


class Peer(ABC):
    """One optimizer, run in a separate process.

    Attributes:
        name: Its name in graphopt.
        distribution: Its Python distribution.
    """

    name: ClassVar[str]
    distribution: ClassVar[str]

    def __init__(self) -> None:
        self._passes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"<peer {self.name} {self.version or 'not installed'}>"

    # -- in the caller's process

    @property
    def version(self) -> str | None:
        """The installed version; None if it is not installed."""
        return version_of(self.distribution)

    def available(self) -> bool:
        """Whether the peer is installed."""
        return self.version is not None and importlib.util.find_spec(self.distribution) is not None

    @property
    def absent(self) -> str:
        """The message if it is not installed."""
        return f"{self.name} is not installed (pip install {self.distribution})"

    def usual_passes(self) -> tuple[str, ...]:
        """The names of the passes that it runs by default; all unless overridden.

        Raises:
            UsageError: like `passes`.
        """
        return self.passes()

    def passes(self) -> tuple[str, ...]:
        """The names that `run_pass` accepts, in the peer's own order; the peer is asked once, in a subprocess.

        Raises:
            UsageError: The peer is not installed, or cannot list its passes.
        """
        if self._passes is None:
            if not self.available():
                raise UsageError(self.absent)
            with Child(worker.list_passes, self, limits=Limits(_LIST_SECONDS), foreign=True) as child:
                message = child.hear() or {}
                status, why, _ = _heard(child, [message])
            names = message.get("passes")
            if status != "ok" or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise UsageError(f"{self.name} cannot list its passes: {why or GARBAGE}")
            self._passes = tuple(names)
        return self._passes

    def check_passes(self, names: Sequence[str]) -> None:
        """Reject names of passes that it cannot run alone.

        Raises:
            UsageError: it has no such pass, or none at all; or like `passes`.
        """
        known = self.passes()
        if not known:
            raise UsageError(f"no pass of {self.name} can run alone")
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 3)
                hint = f"; did you mean {' or '.join(near)}?" if near else f"; it has {len(known)} passes"
                raise UsageError(f"{self.name} has no pass {name!r}{hint}")

    def optimize_file(
        self,
        src: str | os.PathLike[str],
        dst: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        memory_limit: int | None = None,
        check: bool = True,
    ) -> PeerResult:
        """Optimize a file with the peer's default settings.

        Args:
            src: The model; external data is found beside it.
            dst: The output file. An existing one is replaced if the peer succeeds, and kept otherwise.
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
        """Run exactly one of the peer's passes, or none for `NOTHING`; arguments as for `optimize_file`.

        Raises:
            UsageError: The peer has no such pass.
        """
        if pass_name != NOTHING and self.available():
            self.check_passes([pass_name])
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
            return self._result("failed", pass_name, self.absent)
        if not dst.parent.is_dir():
            raise UsageError(f"the folder of the output does not exist: {dst.parent}")
        # A folder beside the target: peers choose the names of data files, and a failure must leave no trace.
        with scratch(dst.parent) as staging:
            limits, made, told = limits_for(dst.parent, timeout, memory_limit), staging / dst.name, []
            job = (self, str(src), str(made), pass_name, check)
            with Child(worker.work, *job, limits=limits, places=[staging], foreign=True) as child:
                for message in child.messages():
                    told.append(message)
                    if "finished" in message:
                        break
                    if message.get("stage") == "check":
                        child.restrict(Limits(_CHECK_SECONDS))
                status, why, measured = _heard(child, told)
            status, why = _refusal(staging, dst) or (status, why) if status == "ok" else (status, why)
            if status != "ok":
                return self._result(status, pass_name, why, **measured)
            return self._result("ok", pass_name, "", output=dst, files=_put_in_place(staging, dst), **measured)

    def _result(self, status: PeerStatus, pass_name: str | None, message: str, **measured: Any) -> PeerResult:
        return PeerResult(self.name, self.version or "", status, pass_name, message=message, **measured)

    # -- in the worker's process

    @abstractmethod
    def load(self) -> None:
        """Import the peer."""

    @abstractmethod
    def optimize(self, src: str, dst: str) -> None:
        """Optimize a file with the peer's default settings."""

    def list_passes(self) -> list[str]:
        """The names of the passes that can run alone."""
        return []

    def prepare(self, pass_name: str) -> None:  # noqa: B027  # most peers need nothing before the clock starts
        """Prepare for one pass, before the timing starts."""

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        """Run one pass, or none for `NOTHING`."""
        raise UsageError(f"{self.name} cannot run {pass_name or 'no pass'} alone")


def limits_for(folder: Path, seconds: float | None = None, memory: int | None = None) -> Limits:
    """The limits of a peer: on disk, half of the free space where it writes."""
    return Limits(seconds, memory, shutil.disk_usage(folder).free // 2)


def data_file(dst: Path) -> Path:
    """The file of an output's external data."""
    return dst.with_name(dst.name + ".data")


def _refusal(staging: Path, dst: Path) -> tuple[PeerStatus, str] | None:
    """Why a peer's output is rejected; None if it is accepted."""
    if not worker.is_file(staging / dst.name):
        return "failed", "wrote no output"
    for path in staging.iterdir():
        place = dst.parent / path.name
        if not worker.is_file(path):
            return "failed", f"wrote something that is not a file: {path.name[:100]}"
        if place not in (dst, data_file(dst)) and os.path.lexists(place):
            return "failed", f"its data would replace {path.name[:100]}"
        if place.is_dir() and not place.is_symlink():
            return "failed", f"cannot replace the folder {path.name[:100]}"
    return None


def _put_in_place(staging: Path, dst: Path) -> tuple[Path, ...]:
    """Move an output and its data files to their target; files that they replace are removed.

    A model whose data is replaced is removed first, so that an interruption leaves no model with another one's data.
    """
    made = sorted(staging.iterdir(), key=lambda path: path.name == dst.name)
    if len(made) > 1 or os.path.lexists(data_file(dst)):
        dst.unlink(missing_ok=True)
        data_file(dst).unlink(missing_ok=True)
    for path in made:
        path.replace(dst.parent / path.name)
    return tuple(dst.parent / path.name for path in reversed(made))


def _heard(child: Child, told: Sequence[Mapping[str, Any]]) -> tuple[PeerStatus, str, dict[str, Any]]:
    """Status, message and figures from a worker's messages and its end."""
    record = {key: value for message in told for key, value in message.items()}
    status, message, measured = judged(record)
    ending = child.ending
    if ending is None or "finished" in record:
        return status, message, measured
    measured.setdefault("peak_memory_bytes", ending.peak or None)
    stage = str(record.get("stage", "start"))[:20]
    if stage == "check":
        return "invalid", f"loading the output ended with {ending.how}", measured
    how, _, last = ending.with_last.partition(": ") if ending.cause == "died" else (ending.with_last, "", "")
    return status_of(ending), f"{how} ({stage})" + (f": {last}" if last else ""), measured


def status_of(ending: Ending) -> PeerStatus:
    """The status of a peer whose process ended too early."""
    return "timeout" if ending.cause == "timeout" else "crashed" if ending.cause == "died" else "failed"


def judged(record: Mapping[str, Any]) -> tuple[PeerStatus, str, dict[str, Any]]:
    """Status, message and figures from a worker's messages; validated, since the peer shares its process."""
    numbers = [(key, record.get(key)) for key in ("seconds", "import_seconds", "peak_memory_bytes")]
    measured = {key: found for key, found in numbers if isinstance(found, int | float) and math.isfinite(found)}
    status, message = record.get("status"), record.get("message", "")
    if status not in ("ok", "failed", "invalid") or not isinstance(message, str):
        return "failed", GARBAGE, measured
    return cast(PeerStatus, status), " ".join(message.split())[:_MAX_MESSAGE], measured
