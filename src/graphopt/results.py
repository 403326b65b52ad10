"""The result of a run: the model, the changes, and figures of both."""

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
from graphopt.printable import counted, printable
from graphopt.records import dataclass
from graphopt.rewrite import Event, Failure, Log, NearMiss, RuleStats
from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from graphopt.verify import Report


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of a model.

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
    """Weights that were left as references to files, as requested by `opaque_weights`.

    Attributes:
        tensors: number of weights.
        bytes: their total size.
        files: the files that hold them, as written in the model: relative to its folder.
    """

    tensors: int
    bytes: int
    files: tuple[str, ...]

    @classmethod
    def of(cls, model: Model) -> Unread:
        """The unread weights of a model."""
        tensors = model.unread()
        names = {place_of(tensor.original) for tensor in tensors if tensor.original is not None}
        return cls(len(tensors), sum(tensor.nbytes for tensor in tensors), tuple(sorted(names)))

    def __str__(self) -> str:
        files = printable(", ".join(self.files))
        return f"{self.tensors} weights ({self.bytes:,} bytes) left unread, expected beside the result in {files}"


class Result(Shown):
    """The result of a run.

    Attributes:
        view: the optimized model as a view.
        log: the events, near misses, failures and statistics.
        before: counts of the original model.
        after: counts of the optimized model.
        seconds: time of the whole run, including loading but not writing.
        pipeline: the pipeline that ran, as text.
        unread: weights that were left as references.
        verification: the oracle's report, if it was requested.
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
        """Whether any pass changed the model."""
        return bool(self.log.events)

    @property
    def events(self) -> list[Event]:
        """The rewrites in order."""
        return self.log.events

    @property
    def near_misses(self) -> list[NearMiss]:
        """Nodes at which a pass matched but declined, with the reason; empty unless `explain=True` was given."""
        return list(self.log.near_misses.values())

    @property
    def failures(self) -> list[Failure]:
        """Passes that raised an exception; their changes were undone."""
        return self.log.failures

    @property
    def zeroed(self) -> int:
        """How many negligible weights were set to zero; the events state bounds on the effect."""
        return sum(event.zeroed for event in self.log.events)

    @property
    def overridable(self) -> int:
        """How many initializers of the result are also inputs, so that no pass reads them."""
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
        """The result as plain data, without the model."""
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
        """The display in a notebook: the operators whose numbers changed, and the passes that fired."""
        from graphopt.audit.notebook import run_html

        return run_html(self.before, self.after, self.hits, self.seconds)
