"""The contestants of an audit, and how each writes its output file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphopt.audit.record import Status
from graphopt.audit.settings import Manager, Settings
from graphopt.audit.worker import Work, do
from graphopt.errors import GraphoptError, UsageError
from graphopt.rewrite import Level
from graphopt.system import extras
from graphopt.system.given import several
from graphopt.system.processes import ChildError, Limits, call

UNOPTIMIZED = "raw, ORT off"
_ORT = "onnxruntime"
BASELINE = "raw, ORT all"
"""The default without any optimizer: ONNX Runtime optimizes at session start."""


def usual_limits() -> Limits:
    """The default limits of one optimizer; computed lazily, since they need psutil."""
    return Limits(300.0)


@dataclass(slots=True)
class Produced:
    """The outcome of one optimizer's run.

    Attributes:
        status: `ok`, or how it failed.
        message: why it failed, or a remark.
        seconds: time from file to file.
        peak_bytes: largest resident memory of its process.
        passes: how often each pass fired.
        removed: nodes that each pass removed, minus those that it added.
    """

    status: Status = "ok"
    message: str = ""
    seconds: float | None = None
    peak_bytes: int | None = None
    passes: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contestant:
    """An optimizer, and ONNX Runtime's own level for running its output.

    Attributes:
        name: name of the row.
        tool: the optimizer.
        runtime: `all`, or `none` for outputs that need no further optimization.
        settings: graphopt's choice of passes.
    """

    name: str
    tool: str
    runtime: str
    settings: Settings | None = None

    @property
    def version(self) -> str:
        """The tool's version; "" if it is not installed."""
        from graphopt import __version__

        if self.tool == "graphopt":
            return __version__
        if self.tool == "raw":
            return extras.version_of(_ORT) or ""
        from graphopt.audit.rivals import version_of

        return version_of(self.tool)

    def produce(self, source: Path, target: Path, limits: Limits, *, isolate: bool = True) -> Produced:
        """Write the output file; without `isolate`, graphopt runs in this process."""
        if self.settings is not None:
            return _run_graphopt(Work(str(source), str(target), self.settings), limits if isolate else None)
        from graphopt.audit.rivals import run_peer

        return run_peer(self.tool, source, target, limits)


def contestants(
    managers: Mapping[str, Manager] | None, levels: Sequence[str | Level], against: Sequence[str] | None,
    settings: Settings | None = None,
) -> list[Contestant]:  # fmt: skip
    """The rows of an audit, in order.

    Args:
        managers: graphopt's choices of passes by name; the levels if None.
        levels: graphopt's levels.
        against: peers; all that are installed if None.
        settings: how passes run at the levels.

    Raises:
        UsageError: a level or a peer is unknown.
    """
    from graphopt.audit.rivals import installed, runtime_of
    from graphopt.peers import by_name

    rows = [Contestant(UNOPTIMIZED, "raw", "none"), Contestant(BASELINE, "raw", "all")]
    if managers is None:
        own = settings or Settings()
        rows += [_own(str(level), replace(own, level=level)) for level in map(Level.of, levels)]
    else:
        rows += [_own(name, Settings.of(manager)) for name, manager in managers.items()]
    known = installed()
    for peer in known if against is None else several("against", against):
        if peer not in known:
            raise UsageError(f"peer {by_name(peer).name} is not installed; found {', '.join(known) or 'none'}")
        rows.append(Contestant(peer, peer, runtime_of(peer)))
    return rows


def _own(name: str, settings: Settings) -> Contestant:
    """Graphopt's row; an output in blocked layout needs no further optimization by ONNX Runtime."""
    settings.plan()
    return Contestant(f"graphopt {name}", "graphopt", "none" if settings.complete else "all", settings)


def _run_graphopt(work: Work, limits: Limits | None) -> Produced:
    try:
        report = do(work) if limits is None else call(do, work, limits=limits)
    except ChildError as error:
        return Produced(error.status, str(error))
    except GraphoptError as error:
        return Produced("failed", str(error))
    message = "; ".join(report["failures"][:3])
    peak = report["peak"] if limits is not None else None  # otherwise the process has done other work as well
    return Produced("ok", message, report["seconds"], peak, report["passes"], report["removed"])
