"""The sentence that an audit ends with."""

from __future__ import annotations

import pytest

from graphopt.audit.machine import Machine
from graphopt.audit.record import Audit, Contents, Row
from graphopt.audit.statistics import Spread
from graphopt.audit.terminal import to_text
from graphopt.audit.verdict import sentence


def row(name: str, median: float, nodes: int, *, width: float = 0.01, verification: str = "close") -> Row:
    tool = name.split(maxsplit=1)[0]
    spread = Spread(median, median - width, median + width, 9)
    contents = Contents(nodes, {}, 0, 0)
    return Row(name, tool, "all", contents=contents, speedup={1: spread}, verification=verification)


def audit(*rows: Row) -> Audit:
    return Audit("m.onnx", list(rows), "raw, ORT all", (1,), {}, Machine("", 1, 0, "", "", {}, None))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [row("graphopt basic", 1.1, 90), row("graphopt all", 1.5, 55), row("onnxslim", 1.2, 100), row("raw", 1.0, 200)],
            "graphopt all runs 1.25 times as fast as the best of the others (onnxslim), with 55 nodes against 100.",
        ),
        (
            [row("graphopt basic", 1.02, 90), row("raw", 1.0, 200)],
            "graphopt basic is as fast as the best of the others (raw), with 90 nodes against 200.",
        ),
        (
            [row("graphopt basic", 1.3, 90, width=0.4), row("onnxsim", 1.0, 100)],
            "Times varied too much to tell whether graphopt basic is faster than the best of the others (onnxsim), with 90 nodes "
            "against 100.",
        ),
        (
            [row("graphopt basic", 0.9, 90, width=0.2), row("onnxsim", 1.0, 100)],
            "Times varied too much to tell whether graphopt basic is slower than the best of the others (onnxsim), with 90 nodes "
            "against 100.",
        ),
        (
            [row("graphopt extended", 3.4, 90), row("graphopt all", 3.5, 80, width=3.0), row("raw", 1.0, 100)],
            "graphopt extended runs 3.40 times as fast as the best of the others (raw), with 90 nodes against 100.",
        ),
        (
            [row("graphopt basic", 1.0, 90), row("onnxsim", 2.0, 80)],
            "onnxsim runs 2.00 times as fast as graphopt's best (graphopt basic), with 80 nodes against 90.",
        ),
        (
            [row("graphopt all", 3.0, 9, verification="mismatch"), row("graphopt basic", 1.5, 90), row("raw", 1.0, 200)],
            "graphopt basic runs 1.50 times as fast as the best of the others (raw), with 90 nodes against 200.",
        ),
        (
            [row("graphopt basic", 1.0, 1), row("raw", 1.0, 1)],
            "graphopt basic is as fast as the best of the others (raw), with 1 node against 1.",
        ),
        ([row("graphopt basic", 1.0, 90)], ""),
    ],
)  # fmt: skip
def test_the_best_of_both_sides_are_compared(rows: list[Row], expected: str) -> None:
    found = audit(*rows)
    assert sentence(found) == expected
    assert expected in " ".join(to_text(found).split())
