"""Each pass of a peer against graphopt's counterpart, alone, on the same graph."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphopt.audit.difference import Diff, diff
from graphopt.audit.passes.isomorphism import isomorphic, live_nodes
from graphopt.audit.passes.record import PassAudit, PassRow, Side, Verdict
from graphopt.audit.settings import Settings
from graphopt.audit.verdicts import oracle_status
from graphopt.errors import GraphoptError, UsageError
from graphopt.ir import Model
from graphopt.peers import NOTHING, Peer, by_name
from graphopt.pipeline import registry
from graphopt.rewrite import Level, Log
from graphopt.verify import ModelLike, compare
from graphopt.verify.source import Source

PEERS = ("onnxoptimizer", "ort-all")
OTHER_PURPOSE = {
    "nop": "does nothing",
    "rename_input_output": "renames inputs and outputs",
    "set_unique_name_for_nodes": "names nodes",
    "rewrite_input_dtype": "changes the types of inputs",
    "lift_lexical_references": "annotates captured values",
    "split_init": "cuts the model in two",
    "split_predict": "cuts the model in two",
    "FreeDimensionOverrideTransformer": "needs a session option",
}
"""Passes that are no optimizations: they have no counterpart, and need none."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class PassConditions:
    """How to compare passes.

    Attributes:
        peers: which peers.
        only: names of passes, the peer's or ours; all when empty.
        level: graphopt's level that stands in where there is no counterpart.
        dims: sizes of symbolic dimensions for the oracle.
        timeout: seconds for one run of a peer or the oracle.
        verify: ask the oracle about each result.
    """

    peers: tuple[str, ...] = PEERS
    only: tuple[str, ...] = ()
    level: Level = Level.EXTENDED
    dims: Mapping[str, int] | None = None
    timeout: float = 120.0
    verify: bool = True


def audit_passes(
    source: ModelLike, conditions: PassConditions | None = None, *, progress: Progress = lambda what, part: None
) -> PassAudit:
    """Compare pass by pass on one model.

    Args:
        source: the model.
        conditions: how.
        progress: told how far things are.

    Raises:
        ModelError: the model cannot be read.
        UsageError: a peer or a pass is not known.
    """
    began = time.perf_counter()
    conditions = conditions or PassConditions()
    given = Source(source, str(source) if isinstance(source, (str, Path)) else "model")
    found = PassAudit([Path(given.label).name])
    try:
        with tempfile.TemporaryDirectory(prefix="graphopt-passes-") as folder:
            for name in conditions.peers:
                run = _Run(given.path(), by_name(name), Path(folder), conditions, found)
                run.all(progress)
    finally:
        given.close()
    if conditions.only and not found.rows:
        raise UsageError(
            f"no pass {conditions.only[0]!r} among those of {', '.join(conditions.peers)} and their counterparts"
        )
    found.seconds = time.perf_counter() - began
    return found


class _Run:
    """One peer's passes on one model."""

    def __init__(self, path: Path, peer: Peer, folder: Path, conditions: PassConditions, found: PassAudit) -> None:
        self.path, self.peer, self.folder, self.conditions, self.found = path, peer, folder, conditions, found
        self.base = folder / f"{peer.name}-base.onnx"
        self.live = 0
        self.judged: dict[str, tuple[str, str]] = {}

    def all(self, progress: Progress) -> None:
        """Compare every pass."""
        result = self.peer.run_pass(self.path, self.base, NOTHING, timeout=self.conditions.timeout, check=False)
        if not result.ok:
            self.found.failures[f"{self.found.models[0]}, {self.peer.name}"] = f"{result.status}: {result.message}"
            return
        self.live = live_nodes(Model.load(self.base))
        pairs = list(self._pairs())
        for number, (theirs, own) in enumerate(pairs):
            progress(f"{self.peer.name}: {theirs}", number / len(pairs))
            self.found.rows.append(self._row(theirs, own))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        known = registry()
        for name in self.peer.passes():
            own = self.peer.counterparts.get(name, "")
            if name in OTHER_PURPOSE:
                self.found.skipped[f"{self.peer.name}: {name}"] = OTHER_PURPOSE[name]
            elif not self.conditions.only or name in self.conditions.only or own in self.conditions.only:
                yield name, own if own in known else ""

    def _row(self, theirs: str, own: str) -> PassRow:
        row = PassRow(self.found.models[0], self.peer.name, theirs, own, self.live, Side(), Side())
        own_file, their_file = self.folder / f"own-{own or 'level'}.onnx", self.folder / "their.onnx"
        self._run_theirs(row, their_file)
        log = Log()
        if own or row.theirs.fired:
            log = self._run_own(row, own_file)
        if not row.ours.fired and not row.theirs.fired:
            row.verdict = "peer wrong" if row.theirs.wrong else "idle"
            row.reason = row.theirs.message
            return row
        self._verify(row.ours, own_file, own or "level")
        self._verify(row.theirs, their_file, "")
        if row.ours.fired and row.theirs.fired:
            row.isomorphic = isomorphic(Model.load(own_file), Model.load(their_file))
        if not row.ours.wrong and not row.theirs.wrong and not row.isomorphic:
            self._leftovers(row, own_file, their_file)
        row.verdict, row.reason = judge(row)
        if row.verdict == "weaker":
            row.reason = _near_misses(log, Model.load(self.base), their_file) or row.reason
        return row

    def _settings(self, own: str) -> Settings:
        return Settings(Level.ALL).only(own) if own else Settings(self.conditions.level)

    def _run_own(self, row: PassRow, target: Path) -> Log:
        settings = self._settings(row.own_pass)
        model = Model.load(self.base)
        started = time.perf_counter()
        model, log = settings.run(model, explain=True)
        side = row.ours
        side.seconds = time.perf_counter() - started
        side.fired, side.hits = bool(log.events), len(log.events)
        side.nodes, side.live = sum(1 for _ in model.nodes()), live_nodes(model)
        if log.failures:
            side.message = f"{log.failures[0].rule} raised {log.failures[0].error}"
        model.save(target)
        return log

    def _run_theirs(self, row: PassRow, target: Path) -> None:
        side = row.theirs
        result = self.peer.run_pass(self.path, target, row.peer_pass, timeout=self.conditions.timeout, check=False)
        side.status, side.message, side.seconds = result.status, result.message, result.seconds
        if result.ok:
            after = Model.load(target)
            side.fired = changed(diff(Model.load(self.base), after))
            side.nodes, side.live = sum(1 for _ in after.nodes()), live_nodes(after)

    def _verify(self, side: Side, file: Path, key: str) -> None:
        """Ask the oracle, about each pass of ours only once."""
        if not self.conditions.verify or not side.fired or side.status != "ok":
            return
        known = self.judged.get(key) if key else None
        if known is None:
            report = compare(self.base, file, dims=self.conditions.dims, timeout=self.conditions.timeout)
            status = oracle_status(report)
            known = status, next(iter(report.summary().splitlines()[1:]), "differs") if status == "mismatch" else ""
            self.judged[key] = known
        side.numbers = known[0]
        side.message = side.message or known[1]

    def _leftovers(self, row: PassRow, own_file: Path, their_file: Path) -> None:
        """Let each pass look at what the other one made."""
        after = self.folder / "after.onnx"
        result = self.peer.run_pass(own_file, after, row.peer_pass, timeout=self.conditions.timeout, check=False)
        nothing = self.folder / "nothing.onnx"
        reread = self.peer.run_pass(own_file, nothing, NOTHING, timeout=self.conditions.timeout, check=False)
        if result.ok and reread.ok:
            row.ours.left = gains(Model.load(nothing), Model.load(after))
        if row.theirs.fired:
            model = Model.load(their_file)
            live = live_nodes(model)
            model, log = self._settings(row.own_pass).run(model)
            row.theirs.left = bool(log.events) and live_nodes(model) < live
        else:
            row.theirs.left = row.ours.fired


def changed(found: Diff) -> bool:
    """Whether a pass did anything to nodes or constants."""
    return bool(
        found.ops or found.removed or found.added or found.changed or found.constants_removed or found.constants_added
    )


def gains(before: Model, after: Model) -> bool:
    """Whether a pass made a graph that runs fewer nodes, or with the same number fewer constants."""
    if live_nodes(after) != live_nodes(before):
        return live_nodes(after) < live_nodes(before)
    found = diff(before, after)
    return bool(found.changed or found.ops) and not found.added


def judge(row: PassRow) -> tuple[Verdict, str]:
    """The verdict and what it rests on."""
    ours, theirs = row.ours, row.theirs
    if ours.wrong:
        return "ours wrong", ours.message
    if theirs.wrong:
        return "peer wrong", f"{theirs.status}: {theirs.message}" if theirs.status != "ok" else theirs.message
    if row.isomorphic:
        return "same", ""
    if not row.own_pass:
        return ("weaker", "it finds more after all of ours") if ours.left else ("same", "other passes of ours do it")
    if ours.left != theirs.left:
        return ("weaker", "it finds more after ours") if ours.left else ("stronger", "")
    if ours.left:
        return ("same", "each finds what the other leaves") if ours.live == theirs.live else _by_count(ours, theirs)
    return "same", "in another form" if ours.fired and theirs.fired else "nothing left for either"


def _by_count(ours: Side, theirs: Side) -> tuple[Verdict, str]:
    reason = f"each finds what the other leaves; {ours.live} against {theirs.live} nodes run"
    return ("stronger" if ours.live < theirs.live else "weaker"), reason


def _near_misses(log: Log, base: Model, their_file: Path) -> str:
    """Why ours declined where theirs did something."""
    found = diff(base, Model.load(their_file))
    touched = {text.partition(" = ")[0] for text in found.removed} | {change.value for change in found.changed}
    outputs = {name.strip() for text in touched for name in text.split(",")}
    reasons = [miss.reason for miss in log.near_misses.values() if outputs & set(miss.node.outputs)]
    return "; ".join(dict.fromkeys(reasons[:2]))


def _within(progress: Progress, start: float, share: float) -> Progress:
    return lambda what, part: progress(what, start + part * share)


def audit_many(
    sources: Sequence[str | Path], conditions: PassConditions | None = None, *,
    progress: Progress = lambda what, part: None,
) -> PassAudit:  # fmt: skip
    """Compare pass by pass on several models; one that cannot be read costs its own rows."""
    began = time.perf_counter()
    found = PassAudit([])
    for number, source in enumerate(sources):
        part = number / len(sources)
        found.models.append(Path(source).name)
        try:
            one = audit_passes(source, conditions, progress=_within(progress, part, 1 / len(sources)))
        except GraphoptError as error:
            found.failures[Path(source).name] = str(error)
            continue
        found.rows += one.rows
        found.skipped.update(one.skipped)
        found.failures.update(one.failures)
    found.seconds = time.perf_counter() - began
    return found
