"""Each pass of a peer against graphopt's counterpart, alone, on the same graph."""

from __future__ import annotations

import filecmp
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphopt.audit.difference import Diff, diff
from graphopt.audit.equivalents import equivalent_passes
from graphopt.audit.passes.isomorphism import isomorphic, live_nodes
from graphopt.audit.passes.reasons import REASONS
from graphopt.audit.passes.record import PassAudit, PassRow, Side, Verdict
from graphopt.audit.settings import Settings
from graphopt.audit.verdicts import oracle_status
from graphopt.errors import GraphoptError, UsageError
from graphopt.ir import Model
from graphopt.peers import NOTHING, PeerResult, by_name
from graphopt.peers.base import Peer
from graphopt.peers.serving import PassServer
from graphopt.rewrite import Level, Log
from graphopt.system.files import scratch
from graphopt.verify import ModelLike, compare
from graphopt.verify.interface import Shapes
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
"""Passes that do not optimize: they need no counterpart."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class PassConditions:
    """How to compare passes.

    Attributes:
        peers: the peers.
        only: names of passes, the peer's or ours; all if empty.
        level: graphopt's level to compare with if there is no counterpart.
        shapes: shapes of inputs for the oracle.
        dims: sizes of symbolic dimensions for the oracle.
        timeout: seconds for one run of a peer or the oracle.
        verify: check each result with the oracle.
    """

    peers: tuple[str, ...] = PEERS
    only: tuple[str, ...] = ()
    level: Level = Level.EXTENDED
    shapes: Shapes | None = None
    dims: Mapping[str, int] | None = None
    timeout: float = 120.0
    verify: bool = True


def audit_passes(
    source: ModelLike, conditions: PassConditions | None = None, *, progress: Progress = lambda what, part: None
) -> PassAudit:
    """Compare pass by pass on one model.

    Args:
        source: the model.
        conditions: how to compare.
        progress: callback that receives the progress.

    Raises:
        ModelError: the model cannot be read.
        UsageError: a peer or a pass is unknown.
    """
    began = time.perf_counter()
    conditions = conditions or PassConditions()
    _check(conditions)
    given = Source(source, str(source) if isinstance(source, (str, Path)) else "model")
    found = PassAudit([Path(given.label).name])
    try:
        with scratch() as folder:
            for name in conditions.peers:
                with PassServer(by_name(name)) as server:
                    _Run(given.plain_path(), server, folder, conditions, found).all(progress)
    finally:
        given.close()
    found.seconds = time.perf_counter() - began
    return found


def _check(conditions: PassConditions) -> None:
    """Reject names of passes that no peer and no counterpart has; the passes of a missing peer are unknown."""
    known: set[str] = set()
    peers = [by_name(name) for name in conditions.peers]
    for peer in filter(Peer.available, peers):
        peer.check_passes(())
        known.update(peer.passes(), *(equivalent_passes().get((peer.distribution, name), ()) for name in peer.passes()))
    unknown = [name for name in conditions.only if name not in known]
    if unknown and all(map(Peer.available, peers)):
        raise UsageError(f"no pass {unknown[0]!r} among those of {', '.join(conditions.peers)} and their counterparts")


@dataclass(frozen=True, slots=True)
class _Own:
    """The result of a pass of ours on a model."""

    settings: Settings
    side: Side
    path: Path
    log: Log


class _Run:
    """One peer's passes on one model."""

    def __init__(
        self, path: Path, server: PassServer, folder: Path, conditions: PassConditions, found: PassAudit
    ) -> None:
        self.path, self.server, self.folder, self.conditions, self.found = path, server, folder, conditions, found
        self.peer = server.peer
        self.base = folder / f"{self.peer.name}-base.onnx"
        self.live = self.nodes = 0
        self.judged: dict[str, tuple[str, str]] = {}
        self.made: dict[str, _Own] = {}

    def all(self, progress: Progress) -> None:
        """Compare every pass."""
        result = self._theirs(self.path, self.base, NOTHING)
        if not result.ok:
            self.found.failures[f"{self.found.models[0]}, {self.peer.name}"] = f"{result.status}: {result.message}"
            return
        base = Model.load(self.base)
        self.live, self.nodes = live_nodes(base), sum(1 for _ in base.nodes())
        pairs = list(self._pairs())
        for number, (theirs, own) in enumerate(pairs):
            progress(f"{self.peer.name}: {theirs}", number / len(pairs))
            self.found.rows.append(self._row(theirs, own))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        table = equivalent_passes()
        for name in self.peer.passes():
            own = table.get((self.peer.distribution, name), ())
            if name in OTHER_PURPOSE:
                self.found.skipped[f"{self.peer.name}: {name}"] = OTHER_PURPOSE[name]
            elif not self.conditions.only or {name, *own} & set(self.conditions.only):
                yield name, ",".join(own)

    def _row(self, theirs: str, own: str) -> PassRow:
        row = PassRow(self.found.models[0], self.peer.name, theirs, own, self.live, Side(), Side())
        their_file = self.folder / "their.onnx"
        self._run_theirs(row, their_file)
        if not own and not row.theirs.fired:
            row.verdict = "peer wrong" if row.theirs.wrong else "idle"
            row.reason = row.theirs.message
            return row
        self._compare(row, their_file, self._own(own, self.conditions.level))
        return self._with_levels(row, their_file) if row.verdict == "weaker" else row

    def _with_levels(self, row: PassRow, their_file: Path) -> PassRow:
        """If our counterpart leaves something undone: whether our other passes do it.

        For a pass without a counterpart the level's verdict stands; otherwise it is the reason why our counterpart need
        not do it alone.
        """
        for level in sorted({self.conditions.level, Level.ALL}):
            if not row.own_pass and level == self.conditions.level:
                continue
            other = replace(row, isomorphic=None, theirs=replace(row.theirs, left=False))
            self._compare(other, their_file, self._own("", level))
            if other.verdict in ("same", "stronger"):
                text = f"other passes of our level {level.name.lower()} do it"
                if not row.own_pass:
                    return replace(other, reason=text)
                recorded = REASONS.get((row.peer, row.peer_pass))
                return replace(row, reason=f"{text}: {recorded}" if recorded else text)
        return row

    def _compare(self, row: PassRow, their_file: Path, made: _Own) -> None:
        """Fill in our side of a row and its verdict."""
        row.ours = replace(made.side)
        if not row.ours.fired and not row.theirs.fired:
            row.verdict = "peer wrong" if row.theirs.wrong else "idle"
            row.reason = row.theirs.message
            return
        self._verify(row.ours, made.path)
        self._verify(row.theirs, their_file)
        if row.ours.fired and row.theirs.fired:
            row.isomorphic = isomorphic(Model.load(made.path), Model.load(their_file))
        if not row.ours.wrong and not row.theirs.wrong and not row.isomorphic:
            self._leftovers(row, made, their_file)
        row.verdict, row.reason = judge(row)
        if row.verdict == "weaker":
            row.reason = REASONS.get((row.peer, row.peer_pass)) or ""
            row.reason = row.reason or _near_misses(made.log, Model.load(self.base), their_file)

    def _own(self, name: str, level: Level) -> _Own:
        """The result of our pass on the model, or of the level if there is none; cached."""
        key = name or str(level)
        if key not in self.made:
            self.made[key] = self._run_own(Settings(Level.ALL).only(name) if name else Settings(level), key)
        return self.made[key]

    def _run_own(self, settings: Settings, key: str) -> _Own:
        model = Model.load(self.base)
        started = time.perf_counter()
        model, log = settings.run(model, explain=True)
        side = Side(seconds=time.perf_counter() - started, fired=bool(log.events), hits=len(log.events))
        side.nodes, side.live = sum(1 for _ in model.nodes()), live_nodes(model)
        if log.failures:
            side.message = f"{log.failures[0].rule} raised {log.failures[0].error}"
        path = self.base
        if log.events:
            path = self.folder / f"{self.peer.name}-own-{key}.onnx"
            model.save(path)
        return _Own(settings, side, path, log)

    def _theirs(self, source: Path, target: Path, name: str) -> PeerResult:
        return self.server.run_pass(source, target, name, timeout=self.conditions.timeout)

    def _run_theirs(self, row: PassRow, target: Path) -> None:
        side = row.theirs
        result = self._theirs(self.path, target, row.peer_pass)
        side.status, side.message, side.seconds = result.status, result.message, result.seconds
        side.nodes, side.live = self.nodes, self.live
        if result.ok and not filecmp.cmp(self.base, target, shallow=False):
            after = Model.load(target)
            side.fired = changed(diff(Model.load(self.base), after))
            side.nodes, side.live = sum(1 for _ in after.nodes()), live_nodes(after)

    def _verify(self, side: Side, file: Path) -> None:
        """Verify with the oracle, each result only once."""
        if not self.conditions.verify or not side.fired or side.status != "ok":
            return
        with file.open("rb") as stream:
            key = hashlib.file_digest(stream, "sha256").hexdigest()
        if key not in self.judged:
            report = compare(
                self.base, file, shapes=self.conditions.shapes, dims=self.conditions.dims,
                timeout=self.conditions.timeout,
            )  # fmt: skip
            status = oracle_status(report)
            wrong = next(iter(report.summary().splitlines()[1:]), "differs") if status == "mismatch" else ""
            self.judged[key] = status, wrong
        side.numbers, wrong = self.judged[key]
        side.message = side.message or wrong

    def _leftovers(self, row: PassRow, made: _Own, their_file: Path) -> None:
        """Run each pass on the result of the other one."""
        after = self.folder / "after.onnx"
        result = self._theirs(made.path, after, row.peer_pass)
        nothing = self.folder / "nothing.onnx"
        reread = self._theirs(made.path, nothing, NOTHING)
        if result.ok and reread.ok:
            row.ours.left = gains(Model.load(nothing), Model.load(after))
        if row.theirs.fired:
            model = Model.load(their_file)
            live = live_nodes(model)
            model, log = made.settings.run(model)
            row.theirs.left = bool(log.events) and live_nodes(model) < live
        else:
            row.theirs.left = row.ours.fired


def changed(found: Diff) -> bool:
    """Whether a pass changed nodes or constants."""
    return bool(
        found.ops or found.removed or found.added or found.changed or found.constants_removed or found.constants_added
    )


def gains(before: Model, after: Model) -> bool:
    """Whether a graph runs fewer nodes, or as many with fewer constants, after a pass."""
    if live_nodes(after) != live_nodes(before):
        return live_nodes(after) < live_nodes(before)
    found = diff(before, after)
    return bool(found.changed or found.ops) and not found.added


def judge(row: PassRow) -> tuple[Verdict, str]:
    """The verdict and its reason."""
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
    """The reasons why our pass declined at nodes that their pass changed."""
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
    """Compare pass by pass on several models; an unreadable one only loses its own rows."""
    began = time.perf_counter()
    _check(conditions or PassConditions())
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
