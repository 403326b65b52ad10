"""What users reported of other optimizers: graphopt gets it right, and the page lists it."""

from __future__ import annotations

import onnx
import pytest

import graphopt
from benchmarks import results
from benchmarks.reports import LEVELS, PAGE, Report, all_reports, tables
from graphopt.verify import compare

REPORTS = all_reports()
ROOM = 64 * 1024  # what folding may add to a small model (docs/adr/0010-growth-by-folding.md)


def made(report: Report, level: str) -> onnx.ModelProto:
    if report.opset is None:
        return graphopt.optimize(report.model, level=level)
    return graphopt.convert(report.model, opset=report.opset)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_what_went_wrong_elsewhere(report: Report) -> None:
    onnx.checker.check_model(report.model, full_check=True)
    before, judged = report.model.graph, set()
    for level in LEVELS if report.opset is None else LEVELS[:1]:
        after = made(report, level)
        if (written := after.SerializeToString(deterministic=True)) in judged:
            continue
        judged.add(written)
        onnx.checker.check_model(after, full_check=True)
        assert list(after.graph.input) == list(before.input)
        assert [value.name for value in after.graph.output] == [value.name for value in before.output]
        assert level == "all" or len(written) <= 1.5 * report.model.ByteSize() + ROOM
        found = compare(report.model, after)
        assert found.ok, str(found)


def test_the_page_has_every_report() -> None:
    stored = results.load("reports")
    assert stored is not None
    assert tables(stored["data"]) in PAGE.read_text()
    assert set(stored["data"]) == {report.name for report in REPORTS if report.opset is None}
