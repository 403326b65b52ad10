"""Reports of a comparison: per output, per run, and as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from graphopt.printable import printable
from graphopt.showing import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Status = Literal["equal", "close", "mismatch", "inconclusive"]
"""`equal`: in every bit; `close`: within the tolerance; `inconclusive`: not comparable."""

_SETS = {"special": "special (NaN, infinities)"}
"""Descriptions of input sets whose names do not explain their contents."""

_ORDER: dict[Status, int] = {"equal": 0, "close": 1, "inconclusive": 2, "mismatch": 3}


def worst(statuses: Sequence[Status]) -> Status:
    """The worst of several statuses; one mismatch outweighs all others."""
    return max(statuses, key=_ORDER.__getitem__, default="inconclusive")


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One output of the model in one run (or, in `Report.outputs`, the worst of all its runs).

    Attributes:
        name: The output's name.
        dtype: Its element type, by the name in NumPy or ml_dtypes.
        shape: Its shape in this run.
        status: `equal`, `close`, `mismatch` or `inconclusive`.
        max_abs: Largest absolute error; infinite if a number, an infinity and NaN are confused in any element
            (otherwise only elements that are finite on both sides count).
        max_rel: `max_abs` relative to the largest finite magnitude of this output.
        mismatches: Number of elements outside the tolerance.
        elements: Number of elements compared.
        first_index: Index of the first element outside the tolerance.
        noise: Largest change of this output of the original by one-ulp changes of the inputs;
            measured only if the plain tolerance was exceeded.
        detail: One line that states what is wrong, or why the output could not be compared.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    status: Status = "equal"
    max_abs: float = 0.0
    max_rel: float = 0.0
    mismatches: int = 0
    elements: int = 0
    first_index: tuple[int, ...] | None = None
    noise: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One run of both models on one set of inputs.

    Attributes:
        set: Name of the input set (`ordinary`, `extreme`, `special`, `overrides`, `given`).
        sizes: The size of each symbolic dimension.
        status: The worst status of its outputs.
        outputs: One report per output; empty if a model did not run.
        detail: Why a model did not run, if one did not.
        original_seconds: Time of the original's run.
        result_seconds: Time of the result's run.
    """

    set: str
    sizes: dict[str, int]
    status: Status
    outputs: tuple[OutputReport, ...] = ()
    detail: str = ""
    original_seconds: float = 0.0
    result_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the two models' interfaces.

    Attributes:
        name: The input or output.
        message: The expected and the found interface.
        breaking: True if a caller of the original could not use the result instead. A shape that
            is only declared in more or less detail is not breaking.
    """

    name: str
    message: str
    breaking: bool


@dataclass(frozen=True, slots=True)
class Report(Shown):
    """The outcome of `compare`.

    Attributes:
        status: `equal` or `close` if all conclusive runs agreed and at least one was conclusive.
        numerics: The level whose tolerances were applied.
        seed: The seed of the inputs; the same seed gives the same inputs.
        backend: The backends of the original and the result (`onnxruntime`, `reference`, or `a/b`).
        interface: Differences of names, order, types and shapes.
        cases: Every run.
        detail: Why nothing could be compared, if nothing could.
        seconds: Time of the whole comparison.
    """

    status: Status
    numerics: str
    seed: int
    backend: str = ""
    interface: tuple[Difference, ...] = ()
    cases: tuple[CaseReport, ...] = ()
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the result was shown to agree with the original."""
        return self.status in {"equal", "close"}

    @property
    def outputs(self) -> tuple[OutputReport, ...]:
        """One report per output: the run with the worst status and, among those, the largest error."""
        kept: dict[str, OutputReport] = {}
        for case in self.cases:
            for output in case.outputs:
                other = kept.get(output.name)
                if other is None or _badness(output) > _badness(other):
                    kept[output.name] = output
        return tuple(kept.values())

    @property
    def max_abs(self) -> float:
        """Largest absolute error of any conclusive output in any run."""
        return max((o.max_abs for o in self._judged()), default=0.0)

    @property
    def max_rel(self) -> float:
        """Largest error relative to an output's range, of any conclusive output in any run."""
        return max((o.max_rel for o in self._judged()), default=0.0)

    def _judged(self) -> Iterator[OutputReport]:
        return (o for case in self.cases for o in case.outputs if o.status != "inconclusive")

    @property
    def only_special(self) -> bool:
        """True if the result differs on inputs with NaN or infinities, and on no others."""
        others = {case.status for case in self.cases if case.set != "special"}
        breaking = any(difference.breaking for difference in self.interface)
        return self.status == "mismatch" and bool(others) and "mismatch" not in others and not breaking

    def status_of(self, set_name: str) -> Status | None:
        """The worst status of an input set; None if that set was not run."""
        statuses = [c.status for c in self.cases if c.set == set_name]
        return worst(statuses) if statuses else None

    def summary(self) -> str:
        """A few lines for a terminal: the verdict, then each problem once, with all its runs."""
        lines = [f"{self.status} ({self.numerics}, {self._ran()})"]
        if self.detail:
            lines.append(self.detail)
        lines += [f"interface: {d.message}" for d in self.interface if d.breaking]
        places: dict[str, list[str]] = {}
        for case in self.cases:
            if case.status in {"equal", "close"}:
                continue
            where = f"{_SETS.get(case.set, case.set)} {_sizes(case.sizes)}".rstrip()
            details = [case.detail] if case.detail else []
            details += [f"{o.name}: {o.detail}" for o in case.outputs if o.status not in {"equal", "close"}]
            for detail in details:
                places.setdefault(detail, []).append(where)
        lines += [f"{', '.join(dict.fromkeys(found))}: {detail}" for detail, found in places.items()]
        if self.only_special:
            lines.append("only inputs with NaN or infinities differ")
        return "\n".join(map(printable, lines))

    def _ran(self) -> str:
        good = sum(c.status in {"equal", "close"} for c in self.cases)
        return f"{good} of {len(self.cases)} runs agree, largest relative error {self.max_rel:.2g}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts()

    def parts(self) -> Iterator[Any]:
        """The printed parts: a table of all runs, and the summary, whose lines are not wrapped."""
        from rich.table import Table
        from rich.text import Text

        from graphopt.terminal import Lines

        table = Table(box=None, pad_edge=False)
        for title in ("inputs", "sizes", "output", "status", "largest error", "relative"):
            number = title in {"largest error", "relative"}
            table.add_column(title, justify="right" if number else "left", overflow="fold")
        for case in self.cases:
            for output in case.outputs:
                status = Text(output.status, style="red" if output.status == "mismatch" else "")
                errors = f"{output.max_abs:.3g}", f"{output.max_rel:.3g}"
                table.add_row(case.set, _sizes(case.sizes), output.name, status, *errors)
        if table.row_count:
            yield table
        yield Lines(self.summary(), style="green" if self.ok else "red")

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data for JSON; `outputs` has the worst run of each output, infinities become None."""
        data = dataclasses.asdict(self)
        data["ok"], data["max_abs"], data["max_rel"] = self.ok, self.max_abs, self.max_rel
        data["outputs"] = [dataclasses.asdict(o) for o in self.outputs]
        plain: dict[str, Any] = _plain(data)
        return plain


def _plain(data: Any) -> Any:
    """Data without tuples and infinities, which JSON does not have."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _badness(output: OutputReport) -> tuple[int, float, int]:
    return _ORDER[output.status], output.max_rel, output.mismatches


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
