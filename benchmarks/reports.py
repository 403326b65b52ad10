"""What users reported of other optimizers, and what each of them does with it now: `python -m benchmarks reports`.

The models are in tests/reports/models, one for a report, rebuilt from what the report says. graphopt runs at its three
levels, or converts, in tests/reports; here it is beside the other optimizers of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from benchmarks import results
from graphopt.fuzzing.subjects import Optimized, PeerSubject
from graphopt.peers import available_peers
from graphopt.verify import compare

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "tests" / "reports" / "models"
PAGE = ROOT / "docs" / "reports.md"
MARK = "<!-- written by `python -m benchmarks reports` -->"
END = "<!-- as far as here -->"
LEVELS = ("basic", "extended", "all")

_HEAD = re.compile(r"# (REPORT|WHAT|TO): (.*)")
_AGAINST = ("onnxoptimizer", "onnxsim", "onnxslim", "onnxscript", "ort-basic", "ort-extended", "ort-all")


@dataclass(frozen=True)
class Report:
    """A report with its model.

    Attributes:
        name: the name of the file.
        repository: where it was reported.
        number: the number of the issue or pull request there.
        what: what went wrong.
        opset: the opset that was asked for, where the report is of a converter.
        model: the model.
    """

    name: str
    repository: str
    number: str
    what: str
    opset: int | None
    model: onnx.ModelProto

    @property
    def address(self) -> str:
        """Where to read it."""
        return f"https://github.com/{self.repository}/issues/{self.number}"

    @classmethod
    def read(cls, path: Path) -> Report:
        """The report of a file."""
        text = path.read_text()
        head = dict(_HEAD.findall(text))
        repository, number = head["REPORT"].split()
        opset = int(head["TO"]) if "TO" in head else None
        model = onnx.parser.parse_model(_HEAD.sub("", text))
        return cls(path.stem, repository, number, head["WHAT"], opset, model)


def all_reports() -> list[Report]:
    """Every report, those of one repository together, the newest last."""
    found = [Report.read(path) for path in sorted(MODELS.glob("*.onnxtxt"))]
    return sorted(found, key=lambda report: (report.repository.lower(), int(report.number)))


def verdict(report: Report, tool: str, outcome: Optimized) -> str:
    """What is to be said of what another optimizer made of a report's model: nothing where it is right."""
    if outcome.model is None:
        return {"raised": "fails"}.get(outcome.fault, outcome.fault)
    if not tool.startswith("ort-"):  # whose results are for itself, with operators that the standard does not know
        try:
            onnx.checker.check_model(outcome.model, full_check=True)
        except Exception:  # the checker raises several unrelated types
            return "invalid"
    return _compared(report, outcome.model)


def _compared(report: Report, model: onnx.ModelProto) -> str:
    for one, two in ((report.model.graph.input, model.graph.input), (report.model.graph.output, model.graph.output)):
        if [value.name for value in one] != [value.name for value in two]:
            return "interface"
    found = compare(report.model, model)
    return "" if found.ok else "wrong"


def run(names: Iterable[str] | None) -> None:
    """Let the other optimizers work on reports, the chosen ones or all, and write the page."""
    stored, reports = results.load("reports"), all_reports()
    known = {report.name for report in reports if report.opset is None}
    rows: dict[str, dict[str, str]] = {n: row for n, row in (stored["data"] if stored else {}).items() if n in known}
    chosen = [r for r in reports if r.opset is None and (r.name in names if names else True)]
    there = {peer.name for peer in available_peers()}
    for tool in (name for name in _AGAINST if name in there):
        subject = PeerSubject(tool)
        for report in chosen:
            rows.setdefault(report.name, {})[tool] = verdict(report, tool, subject.optimize(report.model))
        subject.close()
        results.save("reports", rows)
    write(rows)


def write(rows: dict[str, dict[str, str]]) -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text().partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n\n{tables(rows)}\n\n{END}{rest.partition(END)[2]}")


def tables(rows: dict[str, dict[str, Any]]) -> str:
    """Those of optimizers and those of converters."""
    reports = all_reports()
    of_optimizers = [report for report in reports if report.opset is None]
    lines = [_summary(rows, of_optimizers), "", "| report | what went wrong | now still |", "|---|---|---|"]
    lines += [f"| {_link(r)} | {r.what} | {_faults(rows.get(r.name, {}))} |" for r in of_optimizers]
    lines += ["", "| report of a converter | what went wrong | from | to |", "|---|---|---:|---:|"]
    converters = [report for report in reports if report.opset is not None]
    lines += [f"| {_link(r)} | {r.what} | {r.model.opset_import[0].version} | {r.opset} |" for r in converters]
    return "\n".join(lines)


def _summary(rows: dict[str, dict[str, Any]], reports: list[Report]) -> str:
    counted = [(tool, sum(bool(rows.get(r.name, {}).get(tool)) for r in reports)) for tool in _AGAINST]
    stored = results.load("reports")
    versions = stored["machine"]["packages"] if stored else {}
    named = ", ".join(f"{name} {versions[name]}" for name in _AGAINST[:4] if name in versions)
    faults = ", ".join(f"{tool} {count}" for tool, count in counted)
    runtime = versions.get("onnxruntime", "")
    return f"{len(reports)} models, with {named}, onnxruntime {runtime}. Faults of each: {faults}."


def _link(report: Report) -> str:
    return f"[{report.repository.partition('/')[2]} {report.number}]({report.address})"


def _faults(row: dict[str, str]) -> str:
    """Who has it wrong still, and how."""
    return ", ".join(f"{tool}: {row[tool]}" for tool in _AGAINST if row.get(tool))
