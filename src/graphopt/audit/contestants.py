"""Who takes part in an audit, and how each makes its output file."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.audit.machine import package_version
from graphopt.audit.process import child_environment, ending
from graphopt.audit.record import Status
from graphopt.audit.worker import MARK, Work
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.manager import PassManager

UNOPTIMIZED = "raw, not optimized"
BASELINE = "raw, ORT all"
"""What one gets who does nothing: ONNX Runtime optimizes at session start."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one optimizer may take.

    Attributes:
        seconds: time.
        memory: bytes of address space; None for no limit.
    """

    seconds: float = 300.0
    memory: int | None = None


@dataclass(slots=True)
class Produced:
    """What became of one optimizer's run.

    Attributes:
        status: `ok`, or how it failed.
        message: why it failed, or a remark.
        seconds: time from file to file.
        peak_bytes: largest resident memory of its process.
        passes: how often each pass fired.
    """

    status: Status = "ok"
    message: str = ""
    seconds: float | None = None
    peak_bytes: int | None = None
    passes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to optimize a model, and ONNX Runtime's own level when its output runs.

    Attributes:
        name: name of the row.
        tool: the optimizer.
        runtime: `all`, or `none` for outputs that are complete in themselves.
        settings: arguments of `PassManager` for graphopt.
    """

    name: str
    tool: str
    runtime: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The tool's version, "" when it is not installed."""
        from graphopt import __version__

        if self.tool == "graphopt":
            return __version__
        if self.tool == "raw":
            return package_version("onnxruntime") or ""
        from graphopt.audit.rivals import version_of

        return version_of(self.tool)

    def produce(self, source: Path, target: Path, limits: Limits) -> Produced:
        """Make the output file."""
        if self.tool == "graphopt":
            return _run_graphopt(source, target, dict(self.settings), limits)
        from graphopt.audit.rivals import run_peer

        return run_peer(self.tool, source, target, limits)


def contestants(
    managers: Mapping[str, PassManager] | None, levels: Sequence[str], against: Sequence[str] | None
) -> list[Contestant]:
    """The rows of an audit, in order.

    Args:
        managers: graphopt's choices of passes by name; the levels when None.
        levels: graphopt's levels.
        against: peers; all that are installed when None.

    Raises:
        UsageError: a level or a peer is not known.
    """
    from graphopt.audit.rivals import installed, runtime_of

    rows = [Contestant(UNOPTIMIZED, "raw", "none"), Contestant(BASELINE, "raw", "all")]
    if managers is None:
        rows += [_own(level, {"level": level}) for level in levels]
    else:
        rows += [_own(name, settings_of(manager)) for name, manager in managers.items()]
    known = installed()
    for peer in known if against is None else against:
        if peer not in known:
            raise UsageError(f"unknown peer {peer!r}, or it is not installed; found {', '.join(known) or 'none'}")
        rows.append(Contestant(peer, peer, runtime_of(peer)))
    return rows


def _own(name: str, settings: dict[str, Any]) -> Contestant:
    """graphopt's row: what needs a blocked layout is complete and runs without ONNX Runtime's optimizer."""
    from graphopt.manager import PassManager
    from graphopt.rewrite import Level

    manager = PassManager(**settings)
    complete = manager.level >= Level.LAYOUT
    return Contestant(f"graphopt {name}", "graphopt", "none" if complete else "all", settings)


def settings_of(manager: PassManager) -> dict[str, Any]:
    """The arguments that make an equal manager in another process."""
    return {
        "level": str(manager.level),
        "passes": str(manager.plan.pipeline),
        "skip": sorted(manager.plan.skip),
        "numerics": str(manager.numerics),
        "target": str(manager.target) if manager.target is not None else None,
        "limit": manager.limit,
        "options": manager.options,
    }


def _run_graphopt(source: Path, target: Path, settings: dict[str, Any], limits: Limits) -> Produced:
    with tempfile.TemporaryDirectory(prefix="graphopt-audit-") as folder:
        job = Path(folder) / "work"
        job.write_bytes(pickle.dumps(Work(str(source), str(target), settings)))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "graphopt.audit.worker", str(job)],
                capture_output=True, text=True, errors="replace", timeout=limits.seconds, check=False,
                env=child_environment(), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Produced("timeout", f"stopped after {limits.seconds:g} s")
    lines = [line[1:] for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        how = ending(done.returncode, done.stderr)
        return Produced("crashed" if done.returncode < 0 else "failed", how)
    report = json.loads(lines[-1])
    if "error" in report:
        return Produced("failed", report["error"])
    message = "; ".join(report["failures"][:3])
    return Produced("ok", message, report["seconds"], report["peak"], report["passes"])
