"""Audits of many models: in parallel, resumable, one summary."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.audit.contestants import BASELINE
from graphopt.audit.machine import package_version
from graphopt.audit.notebook import InNotebook
from graphopt.audit.timing import Progress
from graphopt.errors import GraphoptError, UsageError
from graphopt.system.files import write_text
from graphopt.system.processes import Child, Limits, call

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

SCHEMA = 1
_POLL_SECONDS = 0.05
_TOOLS = ("graphopt", "onnx", "onnxruntime", "onnxoptimizer", "onnxsim", "onnxslim", "onnxscript")


@dataclass(slots=True)
class Standing:
    """One contestant over all models.

    Attributes:
        name: the contestant.
        models: models that it gave a right result for.
        failures: models that it failed on, with what happened.
        wrong: models that it miscompiled.
        speedup: geometric mean of speed-ups against the baseline.
        verdicts: how often it was faster, tied, slower.
        nodes: geometric mean of nodes, as a share of the raw model's.
        seconds: time to optimize all of them.
    """

    name: str
    models: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    speedup: float | None = None
    verdicts: dict[str, int] = field(default_factory=dict)
    nodes: float | None = None
    seconds: float = 0.0


@dataclass(slots=True)
class Corpus(InNotebook):
    """The audits of many models.

    Attributes:
        audits: for each model what `Audit.to_dict` gives.
        failures: models that could not be audited, with the reason.
        reused: how many audits came from the store.
    """

    audits: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    reused: int = 0

    @property
    def ok(self) -> bool:
        """Whether graphopt's results were right on every model."""
        return all(audit["ok"] for audit in self.audits.values())

    def standings(self) -> list[Standing]:
        """Each contestant over all models, in the order of rows."""
        names = dict.fromkeys(row["name"] for audit in self.audits.values() for row in audit["rows"])
        return [_standing(name, self.audits) for name in names]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        from dataclasses import asdict

        standings = [asdict(standing) for standing in self.standings()]
        return {"schema": SCHEMA, "standings": standings, "audits": self.audits, "failures": self.failures}

    def to_markdown(self) -> str:
        """As Markdown tables."""
        from graphopt.audit.corpus_view import corpus_to_markdown

        return corpus_to_markdown(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.corpus_view import render_corpus

        yield from render_corpus(self, options.max_width)


def audit_corpus(
    sources: Sequence[str | Path], *, store: str | Path | None = None, jobs: int = 1, timeout: float | None = None,
    progress: Progress = lambda what, part: None, **settings: Any,
) -> Corpus:  # fmt: skip
    """Audit many models.

    Each is audited in a process of its own, so that a crash costs one model. While one is being timed, no other is
    being optimized.

    Args:
        sources: the models.
        store: a folder that keeps each audit as JSON; what is there already, for the same file, settings and versions,
            is not done again.
        jobs: how many models to work on at once.
        timeout: seconds for one model.
        progress: told how far things are.
        **settings: see `graphopt.audit.audit`; `managers` excepted.

    Raises:
        UsageError: an argument is wrong.
    """
    if jobs < 1:
        raise UsageError(f"jobs: at least 1 expected, found {jobs}")
    found = Corpus()
    folder = Path(store) if store is not None else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    todo = _resumed(found, _named(sources), folder, settings)
    total = len(todo) + found.reused
    with closing(_audited(todo, jobs, settings, timeout)) as audited:
        for done, (name, place, outcome) in enumerate(audited, found.reused + 1):
            progress(f"{name} ({done} of {total})", done / total)
            if isinstance(outcome, str):
                found.failures[name] = outcome
                continue
            found.audits[name] = outcome
            if place is not None:
                write_text(place, json.dumps(outcome))
    order = [name for name, _ in _named(sources)]
    found.audits = {name: found.audits[name] for name in order if name in found.audits}
    return found


def _resumed(
    found: Corpus, models: list[tuple[str, Path]], folder: Path | None, settings: dict[str, Any]
) -> list[tuple[str, Path, Path | None]]:
    """Take what the folder has already; what is left to do, each with the file to keep it in."""
    todo: list[tuple[str, Path, Path | None]] = []
    for name, path in models:
        place = folder / f"{_key(path, settings)}.json" if folder is not None and path.is_file() else None
        if place is not None and place.is_file():
            found.audits[name] = json.loads(place.read_text())
            found.reused += 1
        else:
            todo.append((name, path, place))
    return todo


def _audited(
    todo: list[tuple[str, Path, Path | None]], jobs: int, settings: dict[str, Any], timeout: float | None
) -> Generator[tuple[str, Path | None, dict[str, Any] | str]]:
    """What became of each model, in the order in which they are done; nothing goes on when the caller stops."""
    running: set[Child] = set()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_one, path, settings, timeout, running): (name, place) for name, path, place in todo}
        try:
            for future in as_completed(waiting):
                yield *waiting[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in waiting):
                for child in list(running):
                    child.stop()
                time.sleep(_POLL_SECONDS)


def _named(sources: Sequence[str | Path]) -> list[tuple[str, Path]]:
    """Models with names that tell them apart: the file's, with as many folders before it as that takes."""
    paths = [Path(source).absolute() for source in sources]
    for depth in range(1, 12):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return list(dict(zip(names, paths, strict=True)).items()) if paths else []


def _key(path: Path, settings: dict[str, Any]) -> str:
    state = path.stat()
    versions = [package_version(tool) for tool in _TOOLS]
    text = repr((str(path), state.st_size, state.st_mtime_ns, sorted(settings.items(), key=str), versions))
    return f"{path.stem[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _one(path: Path, settings: dict[str, Any], timeout: float | None, running: set[Child]) -> dict[str, Any] | str:
    limits = Limits(timeout, None)
    try:
        outcome: dict[str, Any] = call(audit_one, str(path), settings, limits=limits, among=running)
    except GraphoptError as error:
        return str(error)
    return outcome


def audit_one(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One audit as plain data; runs in a process of its own."""
    from graphopt.audit.comparison import audit

    return audit(path, turn_taking=True, **settings).to_dict()


def _standing(name: str, audits: dict[str, dict[str, Any]]) -> Standing:
    found = Standing(name)
    speedups: list[float] = []
    nodes: list[float] = []
    for model, audit in audits.items():
        row = next((row for row in audit["rows"] if row["name"] == name), None)
        if row is None:
            continue
        found.seconds += row["seconds"] or 0.0
        if row["status"] != "ok":
            found.failures[model] = f"{row['status']}: {row['message']}"
            continue
        if row["verification"] == "mismatch":
            found.wrong.append(model)
            continue
        found.models += 1
        speedup = row["speedup"].get(str(audit["threads"][0]))
        if speedup is not None and name != BASELINE:
            speedups.append(speedup["median"])
            verdict = speedup["verdict"]
            found.verdicts[verdict] = found.verdicts.get(verdict, 0) + 1
        raw = audit["rows"][0]["contents"]
        if row["contents"] and raw and raw["nodes"] and row["contents"]["nodes"]:
            nodes.append(row["contents"]["nodes"] / raw["nodes"])
    found.speedup, found.nodes = _mean(speedups), _mean(nodes)
    return found


def _mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
