"""What a run gives: the model, what was done to it, and both in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import onnx

from graphopt.ir import ExternalData, Model, shown_op
from graphopt.ir.external import place_of
from graphopt.printable import counted
from graphopt.records import dataclass
from graphopt.rewrite import Event, Failure, Log, NearMiss, RuleStats
from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from graphopt.verify import Report


@dataclass(frozen=True, slots=True)
class Census:
    """A model in numbers.

    Attributes:
        nodes: nodes in all graphs.
        ops: how often each operator occurs.
        initializers: constants in all graphs.
        bytes: size of those constants.
    """

    nodes: int
    ops: Mapping[str, int]
    initializers: int
    bytes: int

    @classmethod
    def of(cls, model: Model) -> Census:
        """Count a model."""
        ops = dict(Counter(shown_op(node.op) for node in model.nodes()))
        tensors = [v.tensor for graph in model.graphs() for v in graph.initializers if v.tensor is not None]
        return cls(sum(ops.values()), ops, len(tensors), sum(t.nbytes for t in tensors))


@dataclass(frozen=True, slots=True)
class Unread:
    """Weights that were left as references to files, as `opaque_weights` asks for.

    Attributes:
        tensors: how many.
        bytes: how large they are.
        files: the files that hold them, as the model names them: relative to its folder.
    """

    tensors: int
    bytes: int
    files: tuple[str, ...]

    @classmethod
    def of(cls, model: Model) -> Unread:
        """Those of a model."""
        tensors = model.unread()
        names = {place_of(tensor.original) for tensor in tensors if tensor.original is not None}
        return cls(len(tensors), sum(tensor.nbytes for tensor in tensors), tuple(sorted(names)))

    def __str__(self) -> str:
        files = ", ".join(self.files)
        return f"{self.tensors} weights ({self.bytes:,} bytes) left unread, expected beside the result in {files}"


class Result(Shown):
    """What a run gives.

    Attributes:
        view: the optimized model as a view.
        log: the events, near misses, failures and statistics.
        before: the model in numbers, as it came.
        after: the model in numbers, as it is now.
        seconds: time of the whole run, loading included, writing not.
        pipeline: the pipeline that ran, as text.
        unread: weights that were left as references.
        verification: the oracle's report, when it was asked for.
    """

    def __init__(self, view: Model, log: Log, before: Census, seconds: float, pipeline: str) -> None:
        self.view = view
        self.log = log
        self.before = before
        self.after = Census.of(view)
        self.seconds = seconds
        self.pipeline = pipeline
        self.unread = Unread.of(view)
        self.verification: Report | None = None

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The optimized model."""
        return self.view.flush()

    @property
    def changed(self) -> bool:
        """Whether any pass did anything."""
        return bool(self.log.events)

    @property
    def events(self) -> list[Event]:
        """The rewrites in order."""
        return self.log.events

    @property
    def near_misses(self) -> list[NearMiss]:
        """Places where a pass looked closely and declined; empty unless `explain=True` was given."""
        return list(self.log.near_misses.values())

    @property
    def failures(self) -> list[Failure]:
        """Passes that raised; what they had done was undone."""
        return self.log.failures

    @property
    def zeroed(self) -> int:
        """How many weights were set to zero because they cannot matter; the events state by how much it may matter."""
        return sum(event.zeroed for event in self.log.events)

    @property
    def overridable(self) -> int:
        """How many initializers of the result are inputs, too, so that no pass reads them."""
        return len(self.view.graph.defaults)

    @property
    def stats(self) -> dict[str, RuleStats]:
        """Attempts, hits and seconds of each pass."""
        return self.log.stats

    @property
    def hits(self) -> dict[str, int]:
        """How often each pass fired, for those that did."""
        return dict(Counter(event.rule for event in self.log.events).most_common())

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without the model."""
        return {
            "schema": 1,
            "pipeline": self.pipeline,
            "seconds": self.seconds,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "passes": self.hits,
            "zeroed": self.zeroed,
            "unread": asdict(self.unread),
            "overridable": self.overridable,
            "events": [asdict(event) for event in self.events],
            "failures": [{"pass": f.rule, "node": str(f.node), "error": str(f.error)} for f in self.failures],
            "verification": self.verification.to_dict() if self.verification is not None else None,
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.running import render_run

        yield from render_run(self, self.verification)

    def save(self, path: str | PathLike[str], external_data: ExternalData | None = None) -> None:
        """Write the optimized model; see `graphopt.ir.Model.save`."""
        self.view.save(path, external_data)

    def __repr__(self) -> str:
        return f"Result({self.before.nodes} -> {self.after.nodes} nodes, {counted(len(self.events), 'rewrite')})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the operators that changed, and the passes that did it."""
        from graphopt.audit.notebook import run_html

        return run_html(self.before, self.after, self.hits, self.seconds)
