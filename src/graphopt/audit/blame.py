"""Finds the pass of a peer that makes a model compute something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from graphopt.audit.bisection import Fault, Oracle, Progress, compared, first_bad, nodes_of, reproduce
from graphopt.audit.difference import Diff, diff
from graphopt.audit.passes.conduct import OTHER_PURPOSE, changed
from graphopt.errors import ModelError
from graphopt.ir import Model, Source
from graphopt.peers import NOTHING, by_name
from graphopt.peers.serving import PassServer
from graphopt.system.files import scratch
from graphopt.verify import Feed
from graphopt.verify.interface import taken

_ROUNDS = 2
"""How often the list of passes is repeated: later passes can enable earlier ones."""


def blame(
    source: Source, peer: str, *, only: Sequence[str] = (), numerics: str = "rounding",
    seed: int = 0, dims: Mapping[str, int] | None = None, feed: Feed | None = None, timeout: float = 120.0,
    progress: Progress = lambda what, part: None,
) -> Fault | None:  # fmt: skip
    """Find the pass of a peer (for ONNX Runtime: the transformer or rule) that makes a model's result differ.

    The peer's passes are run one at a time, each on the result of the previous ones, in a process that is restarted
    after a crash or hang.

    Args:
        source: the model.
        peer: name of the peer.
        only: the suspected passes, in the order to run; all that it runs by default if empty.
        numerics: how exact the results must be.
        seed: seed of the generated inputs.
        dims: sizes of symbolic dimensions.
        feed: the user's own inputs, on which the difference shows.
        timeout: seconds for each run of the peer and each comparison.
        progress: callback that receives the progress.

    Returns:
        The fault, or None if the passes, run in sequence, change no result.

    Raises:
        ModelError: the model cannot be read, or the peer cannot read it.
        UsageError: there is no such peer or pass, it is not installed, or it cannot run single passes.
    """
    optimizer = by_name(peer)
    optimizer.check_passes(only)
    with scratch() as folder, PassServer(optimizer) as server:
        chain = _Chain(folder, server, timeout, progress)
        chain.only = tuple(only)
        original = Model.load(source).flush()
        feed = None if feed is None else taken(original, feed)
        oracle = Oracle(numerics, seed, dict(dims or {}), feed, timeout)
        steps = chain.run(original)
        if not steps:
            return None
        if chain.broken:
            number = len(steps)
        elif compared(oracle(original, _load(steps[-1][1]))).status != "mismatch":
            return None
        else:
            number = first_bad(len(steps), lambda n: oracle(original, _load(steps[n - 1][1])).status == "mismatch")
        return _fault(chain, steps, number, oracle)


class _Chain:
    """A peer's passes in sequence."""

    def __init__(self, folder: Path, server: PassServer, timeout: float, progress: Progress) -> None:
        self.folder, self.server, self.timeout, self.progress = folder, server, timeout, progress
        self.peer = server.peer
        self.start = folder / "start.onnx"
        self.broken = ""
        self.only: tuple[str, ...] = ()

    def run(self, original: onnx.ModelProto) -> list[tuple[str, Path]]:
        """The passes that changed anything, each with its file; the file of the last may be missing (`broken`)."""
        given = self.folder / "given.onnx"
        onnx.save(original, given)
        result = self.server.run_pass(given, self.start, NOTHING, timeout=self.timeout)
        if not result.ok:
            raise ModelError(f"{self.peer.name} cannot read the model: {result.message}")
        names = self.only or tuple(name for name in self.peer.usual_passes() if name not in OTHER_PURPOSE)
        steps: list[tuple[str, Path]] = []
        at = self.start
        for round_number in range(_ROUNDS):
            fired = False
            for number, name in enumerate(names):
                self.progress(f"{self.peer.name}: {name}", (round_number + number / len(names)) / _ROUNDS)
                after = self.folder / f"step{len(steps)}.onnx"
                result = self.server.run_pass(at, after, name, timeout=self.timeout)
                if not result.ok:
                    self.broken = f"{result.status}: {result.message}"
                    return [*steps, (name, after)]
                if changed(diff(at, after)):
                    steps.append((name, after))
                    at, fired = after, True
            if not fired:
                break
        return steps

    def step(self, name: str, model: onnx.ModelProto) -> onnx.ModelProto:
        """Run one pass on a model in memory."""
        before, after = self.folder / "part.onnx", self.folder / "part-after.onnx"
        onnx.save(model, before)
        result = self.server.run_pass(before, after, name, timeout=self.timeout)
        if not result.ok:
            raise ModelError(result.message)
        return _load(after)


def _fault(chain: _Chain, steps: list[tuple[str, Path]], number: int, oracle: Oracle) -> Fault:
    name, after = steps[number - 1]
    before = steps[number - 2][1] if number > 1 else chain.start
    first = _load(before)
    if chain.broken and number == len(steps):
        event, report = f"{name}: {chain.broken}", oracle(first, first)
        return Fault(
            chain.peer.name, name, number, len(steps), event, report, first, nodes_of(first), oracle.tests, broken=True
        )
    found = diff(before, after)
    fault = Fault(chain.peer.name, name, number, len(steps), f"{name}: {_words(found)}", oracle(first, _load(after)))
    reproduction = reproduce(first, _places(found), lambda model: chain.step(name, model), oracle)
    if reproduction is not None:
        fault.reproduction, fault.report = reproduction
        fault.nodes = nodes_of(fault.reproduction)
    fault.tests = oracle.tests
    return fault


def _places(found: Diff) -> set[str]:
    """Names of the values computed at the places that a step changed."""
    lines = [*found.removed, *(change.before for change in found.changed)]
    return {name.strip() for line in lines for name in line.partition(" = ")[0].split(",")}


def _words(found: Diff) -> str:
    parts = [f"removed {line}" for line in found.removed] + [f"added {line}" for line in found.added]
    parts += [f"changed {change.before} to {change.after}" for change in found.changed]
    shown = "; ".join(parts[:4])
    return f"{shown} and {len(parts) - 4} more" if len(parts) > 4 else shown or "constants changed"


def _load(path: Path) -> onnx.ModelProto:
    return Model.load(path).flush()
