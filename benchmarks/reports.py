"""Users' reports about other optimizers, and the present state of each: `python -m benchmarks reports`.

The models are in tests/reports/models, one per report, rebuilt from the report. tests/reports runs graphopt on them at
its three levels, or converts; this runs the other optimizers of the environment.
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
        repository: the repository of the report.
        number: the number of the issue or pull request.
        what: the reported fault.
        opset: the requested opset, if the report is about a converter.
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
        """The URL of the report."""
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
    """The fault of another optimizer's result on a report's model; empty if it is right."""
    if outcome.model is None:
        return {"raised": "fails"}.get(outcome.fault, outcome.fault)
    if not tool.startswith("ort-"):  # its results are for itself, with operators that the standard lacks
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
    """Run the other optimizers on all reports or the chosen ones, and write the page."""
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
    """The tables of optimizers and converters."""
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
    """The tools that still have the fault, and its kind."""
    return ", ".join(f"{tool}: {row[tool]}" for tool in _AGAINST if row.get(tool))
