"""A pass audit on terminals of any width says everything, and nothing is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from graphopt.audit.passes.record import PassAudit, PassRow, Side

OURS = Side(fired=True, hits=7, nodes=90, live=83, seconds=0.012)
THEIRS = Side(fired=True, nodes=95, live=95, seconds=0.34, left=True)


def row(model: str, name: str, verdict: str, reason: str = "") -> PassRow:
    return PassRow(model, "onnxoptimizer", name, f"own_{name}", 111, OURS, THEIRS, False, verdict, reason)  # type: ignore[arg-type]


def printed(audit: PassAudit, width: int) -> list[str]:
    buffer = io.StringIO()
    Console(file=buffer, width=width, no_color=True, highlight=False).print(audit)
    return buffer.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 139, 140, 200])
@pytest.mark.parametrize("models", [["one.onnx"], ["one.onnx", "two.onnx"]], ids=["one", "two"])
def test_nothing_is_lost_and_nothing_runs_over(width: int, models: list[str]) -> None:
    rows = [row(name, "eliminate_consecutive_idempotent_ops", "weaker", "a reason of its own") for name in models]
    rows += [row(name, "eliminate_nop_dropout", "stronger") for name in models]
    lines = printed(PassAudit(models, rows), width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for part in ("eliminate_consecutive_idempotent_ops", "83+7 (7x)", "95, left some", "111"):
        assert width >= 140 or part in text, part  # a table folds cells
    squeezed = text.replace(" ", "")
    assert width < 140 or all(part in squeezed for part in ("eliminate_nop_dropout", "83+7(7x)", "111"))
    assert "reason" in text
    assert "…" not in text


def test_a_narrow_summary_counts_verdicts() -> None:
    rows = [row("a", "x", "same"), row("b", "x", "same"), row("c", "x", "weaker", "why")]
    assert "onnxoptimizer: x, here own_x: 1 weaker, 2 same" in "\n".join(printed(PassAudit(["a", "b", "c"], rows), 80))


def test_idle_rows_are_only_counted() -> None:
    lines = printed(PassAudit(["a"], [row("a", "x", "idle")]), 80)
    assert lines == ["a: 1 idle", "nothing to do here: 1 passes of onnxoptimizer"]
