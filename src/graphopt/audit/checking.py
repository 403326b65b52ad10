"""Checks the models of a repository against an earlier report, for anything that must not get worse."""

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
"""Percent by which a model may be slower by default: a smaller difference is noise."""

KINDS = ("numerics", "nodes", "bytes", "slower")


@dataclass(frozen=True, slots=True)
class FailOn:
    """The conditions on which a check fails.

    Attributes:
        numerics: a result is not shown to agree with the original.
        nodes: a result has more nodes than in the baseline.
        size: a file is larger than in the baseline.
        slower: percent of the speed-up that may be lost against the baseline; None for no limit.
    """

    numerics: bool = False
    nodes: bool = False
    size: bool = False
    slower: float | None = None

    @property
    def of_the_past(self) -> bool:
        """Whether some condition requires a baseline."""
        return self.nodes or self.size or self.slower is not None

    @classmethod
    def parse(cls, text: str) -> FailOn:
        """Parse text like `slower=3%,nodes,numerics`.

        Raises:
            UsageError: it names another condition.
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
            if not 0 <= percent < math.inf:  # also rejects NaN
                raise UsageError(f"--fail-on {part!r}: expected percent, like slower=3%")
            found[kind] = percent
        if not found:
            raise UsageError(f"--fail-on names nothing: expected some of {', '.join(KINDS)}")
        return cls("numerics" in found, "nodes" in found, "bytes" in found, found.get("slower"))


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One checked property.

    Attributes:
        model: the model.
        kind: one of `KINDS`.
        ok: whether the condition holds.
        text: the finding.
    """

    model: str
    kind: str
    ok: bool
    text: str


@dataclass(slots=True)
class Check(Shown):
    """The results for all models.

    Attributes:
        findings: the checked properties.
        audits: the measurements, by the model's name; the next baseline.
        notes: what could not be compared, with the reason.
    """

    findings: list[CheckedItem]
    audits: dict[str, dict[str, Any]]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing got worse than allowed."""
        return all(finding.ok for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, which is also the form of a baseline."""
        findings = [asdict(each) for each in self.findings]
        return {"schema": SCHEMA, "ok": self.ok, "findings": findings, "notes": self.notes, "models": self.audits}

    def to_markdown(self) -> str:
        """As a summary for the page of a build."""
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
        # A decoded string would declare the locale's encoding; the file is UTF-8.
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
    """Optimize models and check whether anything got worse.

    Args:
        models: the files.
        conditions: the conditions on which it fails.
        manager: the passes.
        baseline: the result of `read_baseline`; without it only numerics can be checked.
        threads: thread counts to time at, if times are checked.
        rounds: rounds of timing; as many as fit into `budget` if None.
        budget: seconds of timing for each model.
        shapes: shapes of inputs.
        dims: sizes of symbolic dimensions.
        data: an `.npz` file with the user's own inputs, by name.
        seed: seed of generated inputs.
        timeout: seconds for one run of the optimizer or the oracle.
        progress: callback that receives the progress.

    Raises:
        ModelError: the only model cannot be read or run; one of several is counted as failed instead.
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
            # The other models are checked anyway.
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
    """Check that the baseline of a model, if there is one, is comparable."""
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
    """Drop the times of the single round that only checks that the model runs."""
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
    """Times of other days and machines are not comparable; speed-ups over the unoptimized model are."""
    if not row.speedup:  # it did not run: every requested check has a result
        return [CheckedItem(name, "slower", False, row.message or "no time was measured")]
    findings = []
    for threads, now in row.speedup.items():
        was = before["speedup"][str(threads)]
        # Slower only if the whole measured interval is: noise must not fail a build.
        ok = now.high >= was["median"] * (1 - percent / 100) or now.median >= was["low"] * (1 - percent / 100)
        text = f"speed-up over the runtime alone {was['median']:.2f} -> {now.median:.2f}, {threads} thread(s)"
        findings.append(CheckedItem(name, "slower", ok, text))
    return findings


def _past_row(past: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    return next((row for row in (past or {}).get("rows", ()) if row["name"] == name and row["contents"]), None)


def read_baseline(path: str) -> dict[str, Any]:
    """The audits of models by name, from a file that `check` wrote.

    Raises:
        ModelError: it cannot be read, or is no baseline.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    models = data.get("models") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(models, dict) or not all(map(_is_report, models.values())):
        raise ModelError(f"{path} is not a baseline: expected a file that graphopt check --save wrote")
    return models


def _is_report(past: Any) -> bool:
    """Whether an object has all data of a model that a check needs from a baseline."""
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
