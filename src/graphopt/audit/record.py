"""The results of an audit: one row for each way to run the model, and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from graphopt.audit.statistics import Spread, Verdict
from graphopt.showing import Shown

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from graphopt.audit.machine import Machine

SCHEMA = 1
"""Version of the JSON form; within one version fields are only added."""

Status = Literal["ok", "failed", "crashed", "timeout", "memory", "invalid", "missing"]


@dataclass(slots=True)
class Losses:
    """Properties of the original that a model lost.

    Attributes:
        interface: breaking changes of inputs and outputs, in words.
        node_names: lost names of nodes, as far as the result has nodes to carry them.
        metadata: lost metadata entries of model, graph and nodes.
        doc_strings: lost documentation strings.
        other: anything else (training information, annotations, sparse initializers, the producer), in words.
    """

    interface: list[str] = field(default_factory=list)
    node_names: int = 0
    metadata: int = 0
    doc_strings: int = 0
    other: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [*self.interface]
        parts += [
            f"{n} {what}" + ("s" if n > 1 else "")
            for n, what in (
                (self.node_names, "node name"),
                (self.metadata, "metadata value"),
                (self.doc_strings, "doc string"),
            )
            if n
        ]
        return ", ".join([*parts, *self.other])


@dataclass(slots=True)
class Contents:
    """A model file in numbers.

    Attributes:
        nodes: nodes in all graphs.
        ops: the count of each operator.
        parameters: elements of all initializers.
        file_bytes: size of the file and of its external data.
    """

    nodes: int
    ops: dict[str, int]
    parameters: int
    file_bytes: int


@dataclass(slots=True)
class Row:
    """One way to run the model: an optimizer's output, at one level of ONNX Runtime.

    Attributes:
        name: its name.
        tool: the optimizer; `raw` for the original model.
        runtime: ONNX Runtime's own level while running it: `none` or `all`.
        version: the tool's version.
        status: `ok`, or why there is no result.
        message: the error, or a remark.
        seconds: time to optimize from file to file, without imports.
        peak_bytes: largest resident memory of the optimizing process, with imports.
        contents: the output in numbers.
        valid: whether `onnx.checker` accepts the output; None if that was not checked.
        losses: what it lost.
        start: milliseconds until a session is ready, one thread.
        start_speedup: against the baseline.
        latency: milliseconds of a run, by number of threads.
        speedup: against the baseline (above 1: faster), by number of threads.
        max_abs: largest absolute error of its outputs as run here, against the raw model unoptimized.
        max_rel: that error relative to the output's range.
        verification: the oracle's status on inputs that expose errors, run without ONNX Runtime's optimizations:
            `equal`, `close`, `special` (only inputs with NaN or infinities differ), `mismatch` or `inconclusive`.
        metric: the value of the user's own metric.
        passes: how often each of its passes fired, if known.
        removed: nodes that each of these removed, minus those that it added.
    """

    name: str
    tool: str
    runtime: str
    version: str = ""
    status: Status = "ok"
    message: str = ""
    seconds: float | None = None
    peak_bytes: int | None = None
    contents: Contents | None = None
    valid: bool | None = None
    losses: Losses | None = None
    start: Spread | None = None
    start_speedup: Spread | None = None
    latency: dict[int, Spread] = field(default_factory=dict)
    speedup: dict[int, Spread] = field(default_factory=dict)
    max_abs: float | None = None
    max_rel: float | None = None
    verification: str = ""
    metric: float | None = None
    passes: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is an output and it is equivalent to the original."""
        return self.status == "ok" and self.verification != "mismatch"

    def verdict(self, threads: int) -> Verdict | None:
        """Whether it is faster than the baseline."""
        spread = self.speedup.get(threads)
        return None if spread is None else spread.verdict()


@dataclass(slots=True)
class Audit(Shown):
    """The comparison of optimizers on one model.

    Attributes:
        model: name of the model.
        rows: one for each contestant.
        baseline: name of the row that speed-ups refer to.
        threads: the thread counts measured.
        inputs: shape of each input while measuring.
        machine: the machine.
        metric: name of the user's metric, or "".
        notes: remarks on the conditions.
        seconds: time of the audit.
    """

    model: str
    rows: list[Row]
    baseline: str
    threads: tuple[int, ...]
    inputs: dict[str, list[int]]
    machine: Machine
    metric: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    files: Mapping[str, Path] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def row(self, name: str) -> Row:
        """The row of a name; KeyError if there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def ok(self) -> bool:
        """Whether all of graphopt's own rows are equivalent to the original."""
        return all(row.ok for row in self.rows if row.tool == "graphopt")

    def to_dict(self) -> dict[str, Any]:
        """As plain data; the schema is in the documentation (`docs/audit.md`)."""
        from graphopt.audit.serial import audit_to_dict

        return audit_to_dict(self)

    def to_markdown(self) -> str:
        """As Markdown tables."""
        from graphopt.audit.markdown import audit_to_markdown

        return audit_to_markdown(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from graphopt.audit.terminal import render_audit

        yield from render_audit(self, options.max_width)

    def __str__(self) -> str:
        from graphopt.audit.terminal import to_text

        return to_text(self)
