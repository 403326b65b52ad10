"""Models of a repository held against a report of the past: what must not get worse, judged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from graphopt.audit.comparison import audit
from graphopt.audit.timing import Progress
from graphopt.errors import ModelError, UsageError
from graphopt.printable import markdown, printable
from graphopt.showing import Shown
from graphopt.system.processes import Limits

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from graphopt.audit.record import Audit, Row
    from graphopt.audit.settings import Manager
    from graphopt.verify.interface import Shapes

SCHEMA = 1
_TIE = 3.0
"""Percent by which a model may be slower where nothing else is said: less cannot be told from noise."""

KINDS = ("numerics", "nodes", "bytes", "slower")


@dataclass(frozen=True, slots=True)
class FailOn:
    """What a check fails on.

    Attributes:
        numerics: a result that is not shown to agree with the original.
        nodes: more nodes than in the baseline.
        size: a larger file than in the baseline.
        slower: percent of the speed-up that may be lost against the baseline; None for no matter how many.
    """

    numerics: bool = False
    nodes: bool = False
    size: bool = False
    slower: float | None = None

    @property
    def of_the_past(self) -> bool:
        """Whether it takes a baseline to judge some of it."""
        return self.nodes or self.size or self.slower is not None

    @classmethod
    def parse(cls, text: str) -> FailOn:
        """Read text like `slower=3%,nodes,numerics`.

        Raises:
            UsageError: it names something else.
        """
        found: dict[str, float] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            kind, equals, amount = part.partition("=")
            if kind not in KINDS or (equals and kind != "slower"):
                raise UsageError(f"--fail-on {part!r}: expected some of {', '.join(KINDS)}, like slower=3%,nodes")
            try:
                percent = float(amount.removesuffix("%")) if equals else _TIE
            except ValueError:
                percent = math.nan
            if not 0 <= percent < math.inf:  # nor is NaN
                raise UsageError(f"--fail-on {part!r}: expected percent, like slower=3%")
            found[kind] = percent
        if not found:
            raise UsageError(f"--fail-on names nothing: expected some of {', '.join(KINDS)}")
        return cls("numerics" in found, "nodes" in found, "bytes" in found, found.get("slower"))


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One thing that was looked at.

    Attributes:
        model: the model.
        kind: one of `KINDS`.
        ok: whether it is as good as it has to be.
        text: what was found.
    """

    model: str
    kind: str
    ok: bool
    text: str


@dataclass(slots=True)
class Check(Shown):
    """Models, each held against what it was.

    Attributes:
        findings: what was looked at.
        audits: what was measured, by the model's name; the next baseline.
        notes: what could not be compared, and why.
    """

    findings: list[CheckedItem]
    audits: dict[str, dict[str, Any]]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing got worse than allowed."""
        return all(finding.ok for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: also the form of a baseline."""
        findings = [asdict(each) for each in self.findings]
        return {"schema": SCHEMA, "ok": self.ok, "findings": findings, "notes": self.notes, "models": self.audits}

    def to_markdown(self) -> str:
        """As a summary for a build's page."""
        lines = [f"### graphopt check: {self._verdict()}", "", "| | model | what | |", "|---|---|---|---|"]
        for each in self.findings:
            mark = "✅" if each.ok else "❌"
            lines.append(f"| {mark} | {markdown(each.model)} | {each.kind} | {markdown(each.text)} |")
        return "\n".join([*lines, *(f"\n{markdown(note)}" for note in self.notes)]) + "\n"

    def to_junit(self) -> str:
        """As XML that build servers show as tests."""
        failed = sum(not each.ok for each in self.findings)
        suite = ElementTree.Element("testsuite", name="graphopt", tests=str(len(self.findings)), failures=str(failed))
        for each in self.findings:
            case = ElementTree.SubElement(suite, "testcase", classname=printable(each.model), name=each.kind)
            if not each.ok:
                ElementTree.SubElement(case, "failure", message=printable(each.text))
        # As text it would be declared to be in the encoding of the locale; the file is UTF-8.
        written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
        return written.decode() + "\n"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for title in ("", "model", "what", "found"):
            table.add_column(title, overflow="fold")
        for each in self.findings:
            mark = Text("ok", "green") if each.ok else Text("FAIL", "bold red")
            table.add_row(mark, each.model, each.kind, each.text)
        yield table
        yield from (Text(note, "yellow") for note in self.notes)
        yield Text(self._verdict(), "bold")

    def _verdict(self) -> str:
        failed, count = sum(not each.ok for each in self.findings), len(self.findings)
        if failed:
            return f"{failed} of {count} checks failed"
        return f"all {count} checks passed" if count != 1 else "the check passed"


def check(
    models: Sequence[str], conditions: FailOn, manager: Manager, *, baseline: Mapping[str, Any] | None = None,
    threads: Sequence[int] = (1,), rounds: int | None = None, budget: float = 10.0, shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None, data: str | Path | None = None, seed: int = 0, timeout: float = 300.0,
    progress: Progress = lambda what, part: None,
) -> Check:  # fmt: skip
    """Optimize models and see whether anything got worse.

    Args:
        models: the files.
        conditions: what counts as worse.
        manager: the passes.
        baseline: what `read_baseline` gave; without one only numerics can be judged.
        threads: thread counts to time at, where times matter.
        rounds: rounds of timing; as many as fit into `budget` when None.
        budget: seconds of timing for each model.
        shapes: shapes of inputs.
        dims: sizes of symbolic dimensions.
        data: an `.npz` file with inputs of your own, by name.
        seed: seed of generated inputs.
        timeout: seconds that one run of the optimizer or the oracle may take.
        progress: told how far things are.

    Raises:
        ModelError: the only model cannot be read, or the runtime cannot run it; of several that one counts as failed.
        UsageError: the baseline is of another level, or has no times on that many threads.
    """
    found = Check([], {}, [])
    timed = conditions.slower is not None
    held = conditions.of_the_past
    for name in map(_name, models) if held else ():
        _check_baseline(name, (baseline or {}).get(name), f"graphopt {manager.level}", threads if timed else ())
    for number, path in enumerate(models):
        progress(f"checking {path}", number / len(models))
        name = _name(path)
        try:
            report = audit(
                manager.prepared(path), {str(manager.level): manager}, against=[], threads=threads if timed else (1,),
                budget=budget if timed else 0.01, rounds=rounds if timed else 1, verify=True, shapes=shapes, dims=dims,
                data=data, seed=seed, limits=Limits(timeout),
            )  # fmt: skip
        except ModelError as error:
            if len(models) == 1:
                raise
            # The others are judged all the same.
            found.findings.append(CheckedItem(name, "numerics", False, str(error)))
            continue
        found.audits[name] = report.to_dict()
        if not timed:
            _forget_times(found.audits[name])
        past = (baseline or {}).get(name)
        if held and _past_row(past, f"graphopt {manager.level}") is None:
            why = "is not in the baseline" if past is None else "could not be optimized for the baseline"
            found.notes.append(f"{name} {why}: only numerics are judged")
        found.findings += _judge(name, report, str(manager.level), past, conditions)
    return found


def _name(path: str) -> str:
    return Path(path).as_posix()


def _check_baseline(name: str, past: Mapping[str, Any] | None, row_name: str, threads: Sequence[int]) -> None:
    """See that what a baseline says of a model, if it knows it at all, is what it is to be held against."""
    if past is None:
        return
    known = [row["name"] for row in past["rows"]]
    if row_name not in known:
        own = [each for each in known if each.startswith("graphopt ")]
        raise UsageError(f"the baseline has no {row_name} of {name}, only {', '.join(own) or 'other optimizers'}")
    row = _past_row(past, row_name)
    missing = [str(count) for count in threads if row is not None and str(count) not in row["speedup"]]
    if missing:
        again = f"`graphopt check --fail-on slower=3% --threads {','.join(map(str, threads))} --save FILE`"
        raise UsageError(
            f"the baseline has no times of {name} on {', '.join(missing)} thread(s): {again} measures them"
        )


def _forget_times(report: dict[str, Any]) -> None:
    """Leave out what one round, made only to see that the model runs, seemed to take."""
    for row in report["rows"]:
        row["speedup"] = {}


def _judge(
    name: str, report: Audit, level: str, past: Mapping[str, Any] | None, conditions: FailOn
) -> list[CheckedItem]:
    row = report.row(f"graphopt {level}")
    if row.contents is None:
        return [CheckedItem(name, "numerics", False, row.message or row.status)]
    findings = []
    before = _past_row(past, row.name)
    if conditions.numerics or before is None:
        ok = row.ok and row.verification in {"equal", "close", "special"}
        findings.append(CheckedItem(name, "numerics", ok, row.message if not ok and row.message else row.verification))
    if before is None:
        return findings
    for kind, wanted, now, was in (
        ("nodes", conditions.nodes, row.contents.nodes, before["contents"]["nodes"]),
        ("bytes", conditions.size, row.contents.file_bytes, before["contents"]["file_bytes"]),
    ):
        if wanted:
            findings.append(CheckedItem(name, kind, now <= was, f"{was:,} -> {now:,}"))
    if conditions.slower is not None:
        findings += _slower(name, row, before, conditions.slower)
    return findings


def _slower(name: str, row: Row, before: Mapping[str, Any], percent: float) -> list[CheckedItem]:
    """Times of other days and machines say nothing; what was gained over the same model unoptimized does."""
    if not row.speedup:  # it did not run: nothing that was asked for goes without an answer
        return [CheckedItem(name, "slower", False, row.message or "no time was measured")]
    findings = []
    for threads, now in row.speedup.items():
        was = before["speedup"][str(threads)]
        # Slower only where even the upper end of what was measured is: noise must not fail a build.
        ok = now.high >= was["median"] * (1 - percent / 100) or now.median >= was["low"] * (1 - percent / 100)
        text = f"speed-up over the runtime alone {was['median']:.2f} -> {now.median:.2f}, {threads} thread(s)"
        findings.append(CheckedItem(name, "slower", ok, text))
    return findings


def _past_row(past: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    return next((row for row in (past or {}).get("rows", ()) if row["name"] == name and row["contents"]), None)


def read_baseline(path: str) -> dict[str, Any]:
    """What models were, by name, from a file that `check` wrote.

    Raises:
        ModelError: it cannot be read, or is no baseline.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{path} is no JSON: {error}") from None
    models = data.get("models") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(models, dict) or not all(map(_is_report, models.values())):
        raise ModelError(f"{path} is no baseline: expected a file that graphopt check --save wrote")
    return models


def _is_report(past: Any) -> bool:
    """Whether something has of a model what a check asks of a baseline."""
    rows = past.get("rows") if isinstance(past, dict) else None
    return isinstance(rows, list) and all(
        _has(row, "name", "contents", "speedup")
        and (row["contents"] is None or _has(row["contents"], "nodes", "file_bytes"))
        and isinstance(row["speedup"], dict)
        and all(_has(times, "median", "low") for times in row["speedup"].values())
        for row in rows
    )


def _has(found: Any, *keys: str) -> bool:
    return isinstance(found, dict) and found.keys() >= {*keys}
