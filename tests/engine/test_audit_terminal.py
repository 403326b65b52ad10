"""The audit on the terminal: at 80 columns nothing is missing and nothing sticks out."""

from __future__ import annotations

import pytest

from graphopt.audit import columns
from graphopt.audit.machine import Machine
from graphopt.audit.record import Audit, Contents, Losses, Row
from graphopt.audit.statistics import Spread
from graphopt.audit.terminal import to_text

NAMES = ("raw, ORT off", "raw, ORT all", "graphopt basic", "graphopt extended", "graphopt all", "onnxoptimizer",
         "onnxsim", "ort-basic", "ort-extended", "ort-all", "onnxslim", "ort-transformers")  # fmt: skip


def spread(value: float) -> Spread:
    return Spread(value, value * 0.97, value * 1.03, 9)


@pytest.fixture
def found() -> Audit:
    rows = []
    for number, name in enumerate(NAMES):
        ops = {"BatchNormalization": 104 - number, "Conv": 52, "com.microsoft.nchwc::ReorderOutput": number}
        rows.append(
            Row(
                name, name.split()[0], "all", seconds=0.5, peak_bytes=80 << 20, valid=True, start=spread(90.0),
                contents=Contents(1234, ops, 3_540_000, 14_260_633), losses=Losses(node_names=137, metadata=12),
                start_speedup=spread(1.9), latency={1: spread(70.1), 2: spread(41.2)}, max_abs=1e-5, max_rel=3.4e-6,
                speedup={1: spread(1.2), 2: spread(1.0)}, verification="close",
            )
        )  # fmt: skip
    shapes = {"input": [1, 3, 224, 224]}
    return Audit("model.onnx", rows, "raw, ORT all", (1, 2), shapes, Machine.here())


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_every_column_and_every_tool_is_there(found: Audit, width: int) -> None:
    text = to_text(found, width)
    assert max(map(len, text.splitlines())) <= width
    squeezed = " ".join(text.split())
    for column in (*columns.cost_columns(found), *columns.worth_columns(found)):
        assert all(word in squeezed for word in column.title.split()), column.title
        assert column.title, "a column without a name"
        assert column.cell(found.rows[2]) in squeezed, column.title
    for name in NAMES:
        assert text.count(f"\n{name} ") >= 2, f"{name} is missing in a table"
        assert name in squeezed[squeezed.index("Operators") :] or width > 150, f"{name} is missing in the operators"


def test_operators_stand_under_letters_where_there_is_no_room(found: Audit) -> None:
    narrow, wide = to_text(found, 80), to_text(found, 200)
    assert "nchwc::ReorderOutput" in narrow
    assert "com.microsoft.nchwc::ReorderOutput" in wide
    assert "b: graphopt basic" in narrow
    assert "b: graphopt basic" not in wide
